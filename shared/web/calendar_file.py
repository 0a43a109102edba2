"""One event as a calendar file (iCalendar, RFC 5545), on the clock of its venue, whatever the zone of the phone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from shared.runtime.clock import is_offset, zone_of
from shared.words.words import ISOLATES

DURATION_DEFAULT = timedelta(hours=3)
_escapes = str.maketrans({
    **{chr(sign): "" for sign in (*range(0x20), 0x7F)}, **dict.fromkeys(ISOLATES, ""),
    "\\": r"\\", ";": r"\;", ",": r"\,", "\n": r"\n", "\t": " ",
})  # fmt: skip
_line_part = re.compile(rb".{1,73}(?![\x80-\xbf])")  # of UTF-8, cut between characters


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """An event. Adding one with the same `uid` again replaces it. `zone` is an IANA name, `UTC` or an offset, and
    `language` that of the texts, if known. Without `ends_at` it lasts `DURATION_DEFAULT`.
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
    ends_at: datetime | None = None

    @property
    def end(self) -> datetime:
        return self.ends_at or self.starts_at + DURATION_DEFAULT


def calendar_file(entry: CalendarEntry) -> bytes:
    """A calendar with this event."""
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Onsale//Onsale//EN", "METHOD:PUBLISH", *_zone(entry),
        "BEGIN:VEVENT", f"UID:{entry.uid}", f"DTSTAMP:{_utc(entry.made_at)}",
        _moment(entry, "DTSTART", entry.starts_at), _moment(entry, "DTEND", entry.end),
        _text(entry, "SUMMARY", entry.name), _text(entry, "LOCATION", entry.venue),
        *([_text(entry, "DESCRIPTION", entry.description)] if entry.description else []),
        f"URL:{entry.url}", "END:VEVENT", "END:VCALENDAR",
    ]  # fmt: skip
    return b"".join(b"\r\n ".join(_line_part.findall(line.encode())) + b"\r\n" for line in lines)


def _is_named(zone: str) -> bool:
    return not is_offset(zone) and zone != "UTC"


def _moment(entry: CalendarEntry, name: str, at: datetime) -> str:
    if not _is_named(entry.zone):
        return f"{name}:{_utc(at)}"
    return f"{name};TZID={entry.zone}:{at.astimezone(zone_of(entry.zone)):%Y%m%dT%H%M%S}"


def _zone(entry: CalendarEntry) -> list[str]:
    """The zone as it is from the start to the end; calendars that know its name use their own rules."""
    if not _is_named(entry.zone):
        return []
    zone = zone_of(entry.zone)
    first = entry.starts_at.astimezone(zone)
    lines = ["BEGIN:VTIMEZONE", f"TZID:{entry.zone}", *_observance("19700101T000000", first, first)]
    for before, after in _changes(entry.starts_at, entry.end, zone):
        wall = after.astimezone(UTC) + (before.utcoffset() or timedelta())  # of the clock that has not changed yet
        lines += _observance(f"{wall:%Y%m%dT%H%M%S}", before, after)
    return [*lines, "END:VTIMEZONE"]


def _observance(begins: str, before: datetime, after: datetime) -> list[str]:
    kind = "DAYLIGHT" if after.dst() else "STANDARD"
    offsets = [f"TZOFFSETFROM:{f'{before:%z}'[:5]}", f"TZOFFSETTO:{f'{after:%z}'[:5]}"]
    return [f"BEGIN:{kind}", f"DTSTART:{begins}", *offsets, f"END:{kind}"]


def _changes(start: datetime, end: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """The last second before each change of the clock, and the first after it."""
    now, stop = (at.astimezone(UTC).replace(microsecond=0) for at in (start, end))
    while now < stop:
        before, after = now, min(now + timedelta(days=1), stop)
        now = after
        if before.astimezone(zone).utcoffset() == after.astimezone(zone).utcoffset():
            continue
        while after - before > timedelta(seconds=1):
            middle = (before + (after - before) / 2).replace(microsecond=0)
            same = middle.astimezone(zone).utcoffset() == before.astimezone(zone).utcoffset()
            before, after = (middle, after) if same else (before, middle)
        yield before.astimezone(zone), after.astimezone(zone)


def _text(entry: CalendarEntry, name: str, text: str) -> str:
    language = f";LANGUAGE={entry.language}" if entry.language else ""
    return f"{name}{language}:{text.translate(_escapes)}"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
