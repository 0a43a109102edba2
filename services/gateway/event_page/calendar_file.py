"""An event for a calendar: iCalendar (RFC 5545), at the venue's time, whatever the zone of the fan's phone."""

import re
from datetime import UTC, datetime

from services.gateway.event_page.facts import event_path, starts_at
from shared.contracts.catalogue import EventDetails

LINE_MAX_BYTES = 75
_special = re.compile(r"([\\;,])")


def calendar_file(event: EventDetails, public_url: str, now: datetime) -> str:
    """One event. Adding it to a calendar again replaces it: its id is that of the event at this address."""
    start, url = starts_at(event), public_url + event_path(event.event_id)
    named = event.timezone[0] not in "+-" and event.timezone != "UTC"
    when = f"DTSTART;TZID={event.timezone}:{start:%Y%m%dT%H%M%S}" if named else f"DTSTART:{_utc(start)}"
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Onsale//Event//EN", "METHOD:PUBLISH",
        *(_zone(event.timezone, start) if named else ()),
        "BEGIN:VEVENT", f"UID:{event.event_id}@{public_url.partition('://')[2]}", f"DTSTAMP:{_utc(now)}", when,
        f"SUMMARY:{_text(event.name)}", f"LOCATION:{_text(event.venue)}", f"URL:{url}", "END:VEVENT", "END:VCALENDAR",
    ]  # fmt: skip
    return "".join(f"{_folded(line)}\r\n" for line in lines)


def _zone(name: str, start: datetime) -> list[str]:
    """The zone as it is on that day; calendars that know its name use their own rules."""
    offset = f"{start:%z}"[:5]
    rule = ["DTSTART:19700101T000000", f"TZOFFSETFROM:{offset}", f"TZOFFSETTO:{offset}"]
    return ["BEGIN:VTIMEZONE", f"TZID:{name}", "BEGIN:STANDARD", *rule, "END:STANDARD", "END:VTIMEZONE"]


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _text(words: str) -> str:
    return re.sub(r"[\r\n]+", r"\\n", _special.sub(r"\\\1", words))


def _folded(line: str) -> str:
    """Lines of at most 75 bytes, none cut inside a character."""
    parts, size = [""], 0
    for character in line:
        size += len(character.encode())
        if size > LINE_MAX_BYTES:
            parts.append(" ")
            size = 1 + len(character.encode())
        parts[-1] += character
    return "\r\n".join(parts)
