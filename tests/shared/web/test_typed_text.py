"""What a person types or pastes is read as it was meant."""

import sys
import unicodedata

import pytest
from pydantic import ValidationError

from services.gateway.api.schemas import JoinBody
from services.orders.checkout.requests import CustomerDetails, QuoteRequest
from shared.contracts.fields import code_as_shown, code_key, tidy


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("  Ada  ", "Ada"),
        ("Ada\u00a0Lovelace\r\n", "Ada Lovelace"),
        ("\ufeffAda\u200b \u2028Lovelace\u202e", "Ada Lovelace"),
        ("Zoe\u0308", "Zo\u00eb"),
        ("\u200b\x00\t", ""),
    ],
)
def test_a_text_is_tidied(typed: str, meant: str) -> None:
    assert tidy(typed) == meant


@pytest.mark.parametrize(
    ("typed", "shown", "key"),
    [
        ("early", "EARLY", "EARLY"),
        (" Summer\u00a0\n27 ", "SUMMER 27", "SUMMER27"),
        ("fru\u0308hbucher", "FRÜHBUCHER", "FRÜHBUCHER"),
        ("Straße", "STRASSE", "STRASSE"),
        ("\uff33\uff35\uff2d\uff2d\uff25\uff32\uff12\uff17", "SUMMER27", "SUMMER27"),
        ("VIP\u20112027", "VIP-2027", "VIP-2027"),
        ("VIP\u20132027", "VIP-2027", "VIP-2027"),
    ],
)
def test_a_code_has_one_form(typed: str, shown: str, key: str) -> None:
    assert (code_as_shown(typed), code_key(typed)) == (shown, key)


def test_the_form_of_a_code_is_final() -> None:
    """For every character: codes are looked up by what was read of them before."""
    letters = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    changed = (one for one in letters if {unicodedata.normalize("NFKC", one), one.upper(), one.casefold()} != {one})
    for letter in changed:
        once = code_key(f"A{letter}B")
        assert code_key(once) == once == code_key(code_as_shown(letter.join("AB"))), hex(ord(letter))


def test_codes_of_earlier_versions_are_their_own_keys() -> None:
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789-"
    assert code_key(plain) == code_key(plain.lower()) == plain


def test_a_request_takes_a_code_as_it_was_pasted() -> None:
    pasted = "\u00a0early\u200b\n"
    assert QuoteRequest(reservation_id="r", promo_code=pasted).promo_code == "early"
    assert JoinBody(code=pasted).code == "early"
    assert QuoteRequest(reservation_id="r", promo_code=" \n").promo_code is None
    assert JoinBody(code="").code is None


def test_addresses_and_numbers_are_taken_as_they_were_pasted() -> None:
    customer = CustomerDetails(name="Ada", email=" ada@example.org\u00a0\n", phone="+49\u00a030 1\n")
    assert (customer.email, customer.phone) == ("ada@example.org", "+49 30 1")
    assert CustomerDetails(name="Ada", email="a@b.de", phone="030  12").phone == "030  12", "as it was typed"
    with pytest.raises(ValidationError):
        CustomerDetails(name="Ada", email="ada @example.org")
