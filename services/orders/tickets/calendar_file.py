"""The show of an order as a calendar file (RFC 5545)."""

from datetime import UTC, datetime

from services.orders.tickets.show import ShowInfo
from shared.web.pages.words import ISOLATES, Words

OCTETS_MAX = 73
_escapes = str.maketrans({"\\": r"\\", ";": r"\;", ",": r"\,", "\n": r"\n", "\r": "", **dict.fromkeys(ISOLATES, "")})


def calendar_file(show: ShowInfo, text: Words, *, reference: str, url: str, at: datetime) -> bytes:
    """One event, at the start of the show; `at` is when the order was made."""
    assert show.starts_at is not None
    language = f";LANGUAGE={text.language}"
    lines = (
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Onsale//Onsale//EN", "BEGIN:VEVENT", f"UID:{reference}@onsale",
        f"DTSTAMP:{_utc(at)}", f"DTSTART:{_utc(show.starts_at)}", f"SUMMARY{language}:{show.name.translate(_escapes)}",
        f"LOCATION{language}:{show.venue.translate(_escapes)}",
        f"DESCRIPTION{language}:{text('mail_order', reference=reference).translate(_escapes)}", f"URL:{url}",
        "END:VEVENT", "END:VCALENDAR",
    )  # fmt: skip
    return b"".join(_folded(line) + b"\r\n" for line in lines)


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _folded(line: str) -> bytes:
    """The line in parts of at most 75 octets, cut between characters."""
    parts, part = list[bytes](), b""
    for sign in line:
        octets = sign.encode()
        if len(part) + len(octets) > OCTETS_MAX:
            parts.append(part)
            part = b""
        part += octets
    return b"\r\n ".join([*parts, part])
