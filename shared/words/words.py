"""Texts in the languages of the pages: `shared/words/<language>.json`, from which the pages' scripts are built, too.

A text has `{name}` for a value, and may have one form for each plural category of its language (CLDR). Mails and papers
take the same texts, with dates, times and money as Babel writes them.
"""

import json
from collections.abc import Mapping
from copy import copy
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

from babel import Locale
from babel.dates import format_date, format_time
from babel.numbers import format_decimal

from shared.rules.currencies import digits

FOLDER = Path(__file__).parent
LANGUAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
DEFAULT_LANGUAGE = "en"
ISOLATES = ("\u2068", "\u2067", "\u2069")  # begin a part of its own direction, begin one from right to left, end it
LEFT_TO_RIGHT = "\u200e"


class Words:
    """The texts of one language."""

    def __init__(self, language: str) -> None:
        self._texts: Mapping[str, str | Mapping[str, str]] = json.loads(
            (FOLDER / f"{language}.json").read_text("utf-8")
        )
        self._locale = Locale.parse(self("locale"), sep="-")
        self.language, self.direction, self.name = language, self("direction"), self("name")

    def __call__(self, key: str, **values: str | int) -> str:
        """The text with its values; of a text with plural forms, the form of `n`."""
        text = self._texts[key]
        if not isinstance(text, str):
            text = text[self._locale.plural_form(int(values["n"]))]
        return text.format_map({name: self._shown(value) for name, value in values.items()})

    def number(self, value: int) -> str:
        return self._shown(value)

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def date(self, at: datetime) -> str:
        """Such as Sat, 1 June 2030, in the zone of `at`."""
        return format_date(at, self("date"), locale=self._locale)

    def time(self, at: datetime) -> str:
        """Such as 19:30 Japan Standard Time, in the zone of `at`."""
        return format_time(at, self._locale.time_formats["short"].pattern + " zzzz", locale=self._locale)

    def moment(self, at: datetime) -> str:
        """Date and time, as the pages write them."""
        return self("moment", date=self.date(at), time=self.time(at))

    def money(self, minor: int, currency: str) -> str:
        """Such as €1,234.50, with as many decimals as the currency has by ISO 4217."""
        pattern, count = copy(self._locale.currency_formats["standard"]), digits(currency)
        pattern.frac_prec = (count, count)
        amount = Decimal(minor).scaleb(-count)
        written: str = pattern.apply(amount, self._locale, currency=currency, currency_digits=False)
        return written if self.direction == "ltr" else written.replace("-", f"{LEFT_TO_RIGHT}-")  # left of its digits

    def listed(self, *values: str) -> str:
        """The values that are not empty, one after another."""
        return self("list_comma").join(self._shown(value) for value in values if value)

    def _shown(self, value: str | int) -> str:
        """In a text from right to left each value keeps its own direction, as on the pages; one that was made of such a
        text has that of the text, since first letters inside marks do not count.
        """
        if isinstance(value, int):
            return format_decimal(value, locale=self._locale)
        if self.direction == "ltr":
            return value
        own, rightwards, end = ISOLATES
        return f"{rightwards if own in value else own}{value}{end}"


@cache
def words(language: str) -> Words:
    """English for a language that is none of `LANGUAGES`: another version may have stored it."""
    return Words(language if language in LANGUAGES else DEFAULT_LANGUAGE)


def adjustment_name(text: Words, *, kind: str, name: str, percent: str | None) -> str:
    """Its name with its percentage, such as VAT (19 %); of a discount the promo code."""
    share = f" ({text('percent', n=f'{Decimal(percent).normalize():f}')})" if percent else ""
    return (text("bill_promo", name=name) if kind == "discount" else name) + share
