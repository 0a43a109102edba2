"""Refuses card numbers in any field of a request, so that none is ever stored or logged."""

import re
from collections.abc import Iterator
from typing import Any

from services.orders.problems import CardNumberRefused
from shared.contracts.fields import Body

DIGITS_MIN, DIGITS_MAX = 13, 19
OWN_ID_FIELDS = ("reservation_id",)  # hexadecimal: may look like anything by chance
_DIGIT_GROUPS = re.compile(r"\+?\d+(?:[ ._()/-]{1,2}\d+)*")
_DIGIT_GROUPS_ALONE = re.compile(
    rf"(?<![^\W_]){_DIGIT_GROUPS.pattern}(?![^\W_])"
)  # digits amid letters are part of an id


_MAYBE_CARD = re.compile(rf"\d(?:[ ._()/-]{{0,2}}\d){{{DIGITS_MIN - 1}}}")


def refuse_card_numbers(body: Body, as_json: str | None = None) -> None:
    """Raises `CardNumberRefused`, which names the field and never repeats its value. `as_json` is the body as JSON, if
    the caller has it already.
    """
    if not _MAYBE_CARD.search(as_json or body.model_dump_json()):
        return  # the quick way out: too few digits anywhere
    for field, text in _texts(body.model_dump()):
        if field.split(".")[-1] not in OWN_ID_FIELDS and looks_like_card_number(text, is_token=field.endswith("token")):
            raise CardNumberRefused(f"{field}: this looks like a card number. Send the provider's token for the card.")


def looks_like_card_number(text: str, *, is_token: bool = False) -> bool:
    """Whether a text contains 13 to 19 digits with a valid check digit, in one piece or grouped as on cards, the first
    from 2 to 9. A telephone number with a `+` is none, nor digits amid letters, except in a token. A token of nothing
    but 13 to 19 digits always counts.
    """
    if is_token and re.fullmatch(rf"\d{{{DIGITS_MIN},{DIGITS_MAX}}}", text):
        return True
    rows = (
        re.findall(r"\d+", row)
        for row in (_DIGIT_GROUPS if is_token else _DIGIT_GROUPS_ALONE).findall(text)
        if not row.startswith("+")
    )
    return any(_is_card(digits) for groups in rows for digits in _adjacent_groups(groups))


def _adjacent_groups(groups: list[str]) -> Iterator[str]:
    """Every concatenation of adjacent groups that is short enough for a card."""
    for first in range(len(groups)):
        digits = ""
        for group in groups[first:]:
            digits += group
            if len(digits) > DIGITS_MAX:
                break
            yield digits


def _is_card(digits: str) -> bool:
    if len(digits) < DIGITS_MIN or digits[0] in "01":
        return False
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, field)
