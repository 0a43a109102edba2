"""One table of currencies: what a page shows is what the server writes, and what is charged."""

import json
import re
import shutil
import subprocess
import unicodedata
from decimal import Decimal
from pathlib import Path

import pytest

from shared.rules.currencies import CURRENCIES, decimal_amount, digits, format_money
from shared.words.words import LANGUAGES, words

WEB = Path(__file__).parents[3] / "web"
AMOUNTS = (0, 7, 1_234, 123_456, 99_999_999)


def test_the_table_has_the_digits_of_iso_4217() -> None:
    none = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
    three = "BHD IQD JOD KWD LYD OMR TND"
    two = "EUR HUF IDR COP PKR RSD MGA MRU"
    assert [digits(code) for code in none.split()] == [0] * 16
    assert [digits(code) for code in three.split()] == [3] * 7
    assert [digits(code) for code in two.split()] == [2] * 8
    assert not {"EUE", "XYZ", "XXX", "XTS", "XAU", "HRK", "BGN"} & CURRENCIES.keys()


@pytest.mark.parametrize(
    ("minor", "currency", "for_people", "for_programs"),
    [
        (123_450, "EUR", "EUR 1,234.50", "1234.50"),
        (-123_450, "HUF", "HUF -1,234.50", "-1234.50"),
        (1_234, "JPY", "JPY 1,234", "1234"),
        (5_125, "KWD", "KWD 5.125", "5.125"),
    ],
)
def test_an_amount_is_written(minor: int, currency: str, for_people: str, for_programs: str) -> None:
    assert format_money(minor, currency) == for_people
    assert decimal_amount(minor, currency) == for_programs


def test_a_page_shows_the_amount_that_is_charged_in_every_currency_and_language() -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules/esbuild").is_dir():
        pytest.skip("node or its packages are not installed: npm ci in web/")
    wanted = [(language, minor, code) for language in LANGUAGES for code in CURRENCIES for minor in AMOUNTS]
    script = Path(__file__).parents[1] / "web/written_amounts.mjs"
    done = subprocess.run(
        [node, script, WEB], input=json.dumps(wanted).encode(), capture_output=True, check=True, timeout=60
    )
    different = [
        (*one, on_page, by_server)
        for one, on_page in zip(wanted, json.loads(done.stdout), strict=True)
        if not (
            _amount(on_page, one[2])
            == _amount(by_server := words(one[0]).money(one[1], one[2]), one[2])
            == Decimal(decimal_amount(one[1], one[2]))
        )
    ]
    assert different == []


def _amount(text: str, currency: str) -> Decimal:
    """The number of a text. Symbols of currencies and the grouping of thousands differ between editions of CLDR."""
    normal = "".join(str(unicodedata.digit(letter)) if letter.isdecimal() else letter for letter in text)
    found = re.search(r"\d(?:[\d.,\s\u066b\u066c]*\d)?", normal)
    assert found is not None, text
    whole, minor = found[0], ""
    if count := digits(currency):
        whole, mark, minor = found[0][: -count - 1], found[0][-count - 1], found[0][-count:]
        assert mark in ".,\u066b", text
    return Decimal(re.sub(r"\D", "", whole) + "." + minor)
