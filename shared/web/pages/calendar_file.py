"""One event as a calendar file (iCalendar, RFC 5545), on the clock of its venue, whatever the zone of the phone."""

from dataclasses import dataclass
from datetime import UTC, datetime

from shared.runtime.clock import is_offset, zone_of
from shared.web.pages.words import ISOLATES

OCTETS_MAX = 73
_escapes = str.maketrans({"\\": r"\\", ";": r"\;", ",": r"\,", "\n": r"\n", "\r": "", **dict.fromkeys(ISOLATES, "")})


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """An event. Adding one with the same `uid` again replaces it. `zone` is an IANA name, `UTC` or an offset, and
    `language` that of the texts, if known.
    """

    uid: str
    made_at: datetime
    starts_at: datetime
    zone: str
    name: str
    venue: str
    url: str
    description: str = ""
    language: str = ""


def calendar_file(entry: CalendarEntry) -> bytes:
    """A calendar with this event."""
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Onsale//Onsale//EN", "METHOD:PUBLISH", *_zone(entry),
        "BEGIN:VEVENT", f"UID:{entry.uid}", f"DTSTAMP:{_utc(entry.made_at)}", _start(entry),
        _text(entry, "SUMMARY", entry.name), _text(entry, "LOCATION", entry.venue),
        *([_text(entry, "DESCRIPTION", entry.description)] if entry.description else []),
        f"URL:{entry.url}", "END:VEVENT", "END:VCALENDAR",
    ]  # fmt: skip
    return b"".join(_folded(line) + b"\r\n" for line in lines)


def _is_named(zone: str) -> bool:
    return not is_offset(zone) and zone != "UTC"


def _start(entry: CalendarEntry) -> str:
    if not _is_named(entry.zone):
        return f"DTSTART:{_utc(entry.starts_at)}"
    return f"DTSTART;TZID={entry.zone}:{entry.starts_at.astimezone(zone_of(entry.zone)):%Y%m%dT%H%M%S}"


def _zone(entry: CalendarEntry) -> list[str]:
    """The zone as it is on that day; calendars that know its name use their own rules."""
    if not _is_named(entry.zone):
        return []
    offset = f"{entry.starts_at.astimezone(zone_of(entry.zone)):%z}"[:5]
    rule = ["DTSTART:19700101T000000", f"TZOFFSETFROM:{offset}", f"TZOFFSETTO:{offset}"]
    return ["BEGIN:VTIMEZONE", f"TZID:{entry.zone}", "BEGIN:STANDARD", *rule, "END:STANDARD", "END:VTIMEZONE"]


def _text(entry: CalendarEntry, name: str, text: str) -> str:
    language = f";LANGUAGE={entry.language}" if entry.language else ""
    return f"{name}{language}:{text.translate(_escapes)}"


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
