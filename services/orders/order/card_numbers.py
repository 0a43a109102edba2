"""Card numbers do not come in: whoever sends one, in whichever field, is told so, and nothing of it is kept."""

import re
from collections.abc import Iterator
from typing import Any

from services.orders.problems import CardNumberRefused
from shared.web.fields import Body

DIGITS_MIN, DIGITS_MAX = 13, 19
OUR_IDS = ("reservation_id",)  # hexadecimal, and by chance anything
_ROW = re.compile(r"\+?\d+(?:[ ._()/-]{1,2}\d+)*")
_ROW_ALONE = re.compile(rf"(?<![^\W_]){_ROW.pattern}(?![^\W_])")  # among letters it is somebody's id


_PERHAPS = re.compile(rf"\d(?:[ ._()/-]{{0,2}}\d){{{DIGITS_MIN - 1}}}")


def refuse_card_numbers(asked: Body, told: str | None = None) -> None:
    """Raises `CardNumberRefused`, which names the field and never repeats what was in it. `told` is the same as JSON,
    if there is one already.
    """
    if not _PERHAPS.search(told or asked.model_dump_json()):
        return  # nobody's card: there are not so many digits in a row anywhere
    for field, text in _texts(asked.model_dump()):
        if field.split(".")[-1] not in OUR_IDS and looks_like_card_number(text, is_token=field.endswith("token")):
            raise CardNumberRefused(f"{field}: this looks like a card number. Send the provider's token for the card.")


def looks_like_card_number(text: str, *, is_token: bool = False) -> bool:
    """13 to 19 digits whose check digit is right, in one piece or in groups, as cards have them: the first from 2 to 9,
    and not a telephone number that says so by its `+`; standing alone, but in a token anywhere. Of a token also any 13
    to 19 digits and nothing else.
    """
    if is_token and re.fullmatch(rf"\d{{{DIGITS_MIN},{DIGITS_MAX}}}", text):
        return True
    rows = (
        re.findall(r"\d+", row) for row in (_ROW if is_token else _ROW_ALONE).findall(text) if not row.startswith("+")
    )
    return any(_is_card(digits) for groups in rows for digits in _neighbours(groups))


def _neighbours(groups: list[str]) -> Iterator[str]:
    """Every row of neighbouring groups that is not too long."""
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
