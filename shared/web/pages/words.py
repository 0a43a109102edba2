"""Texts in the languages of the pages: `shared/words/<language>.json`, from which the pages' scripts are built, too.

A text has `{name}` for a value, and may have one form for each plural category of its language (CLDR).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path

from babel import Locale
from babel.dates import format_date
from babel.numbers import format_decimal

FOLDER = Path(__file__).parents[2] / "words"
LANGUAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
DEFAULT_LANGUAGE = "en"
RANGES_MAX = 16


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

    def has(self, key: str) -> bool:
        return key in self._texts

    def date(self, at: datetime) -> str:
        """Such as Sat, 1 June 2030, in the zone of `at`."""
        return format_date(at, self("date"), locale=self._locale)

    def _shown(self, value: str | int) -> str:
        return format_decimal(value, locale=self._locale) if isinstance(value, int) else value


@cache
def words(language: str) -> Words:
    """One of `LANGUAGES`."""
    return Words(language)


def accepted_language(header: str) -> str:
    """The best of our languages for an `Accept-Language`; English if none of them is accepted."""
    ranges = (part.partition(";") for part in header.split(",")[:RANGES_MAX])
    rated = [(_weight(weight), tag.strip().partition("-")[0].lower()) for tag, _, weight in ranges]
    rated.sort(key=lambda each: -each[0])
    return next((language for weight, language in rated if weight > 0 and language in LANGUAGES), DEFAULT_LANGUAGE)


def _weight(parameter: str) -> float:
    try:
        return float(parameter.strip().removeprefix("q=") or 1)
    except ValueError:
        return 0
