"""What a charge is for, in words: for the provider's dashboard and receipts, and for the statement of the fan's card.

A card statement has room for 22 characters of Latin script and few signs. A name that is mostly written otherwise is
replaced by the event's id, or by the order's reference.
"""

import unicodedata
from typing import Final

from services.orders.tickets.show import ShowInfo

DESCRIPTION_MAX_CHARS, STATEMENT_MAX_CHARS = 200, 22
WITHOUT_MARKS: Final = str.maketrans({
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i", "–": "-", "—": "-",
})  # fmt: skip
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SIGNS: Final = frozenset(" -.,:&+/#!()")  # besides letters and digits; banks print no others reliably


def description(show: ShowInfo, reference: str) -> str:
    """Event, day and order, as `Night 1, 2027-05-01, 7Q2M4XK9TB1C`; the name is cut if it is too long."""
    rest = ", ".join([*([f"{show.starts_at:%Y-%m-%d}"] if show.starts_at else []), reference])
    name = " ".join(show.name.split())[: DESCRIPTION_MAX_CHARS - len(rest) - 2].strip()
    return f"{name or show.event_id}, {rest}"


def statement(show: ShowInfo, reference: str) -> str:
    """Event and day, as `Night 1 Arena 1 May`: at most 22 characters, at least one of them a letter."""
    name = _latin(show.name) or _latin(show.event_id) or f"Order {_latin(reference)}"
    day = f" {show.starts_at.day} {MONTHS[show.starts_at.month - 1]}" if show.starts_at else ""
    return name[: STATEMENT_MAX_CHARS - len(day)].rstrip(" -.,:&+/#(") + day


def _latin(text: str) -> str:
    """The text in plain Latin letters; empty unless most of its letters can be written so."""
    plain = unicodedata.normalize("NFKD", text.translate(WITHOUT_MARKS))
    kept = "".join(sign for sign in plain if sign.isascii() and (sign.isalnum() or sign in SIGNS))
    letters, latin = sum(map(str.isalpha, plain)), sum(map(str.isalpha, kept))
    return " ".join(kept.split()).strip(" -.,:&+/") if latin * 2 > letters else ""
