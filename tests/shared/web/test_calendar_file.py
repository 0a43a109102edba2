"""The calendar file by RFC 5545: an end, folded lines, escaped texts, and a zone that is right on every night."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.contracts.event_file import SHOW_MAX, EventFile
from shared.web.calendar_file import CalendarEntry, calendar_file

STARTS = datetime(2030, 5, 4, 18, 0, tzinfo=UTC)
FILE = {
    "event_id": "e", "name": "Night", "venue": "Hall", "currency": "EUR", "starts_at": STARTS.isoformat(),
    "sections": [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 1, "price_minor": 1}],
}  # fmt: skip
ESCAPED = re.compile(r"\\(.)")


def entry(**changes: object) -> CalendarEntry:
    values: dict[str, object] = {
        "uid": "e@t.example", "made_at": STARTS, "starts_at": STARTS, "zone": "Europe/Berlin", "name": "Night",
        "venue": "Hall", "url": "https://t.example/e/e", **changes,
    }  # fmt: skip
    return CalendarEntry(**values)  # type: ignore[arg-type]


def unfolded(one: CalendarEntry) -> list[str]:
    """The lines of the file, which is checked for what every calendar needs."""
    file = calendar_file(one)
    assert file.endswith(b"\r\n")
    assert all(len(line) <= 75 for line in file.split(b"\r\n"))
    lines = file.decode().replace("\r\n ", "").removesuffix("\r\n").split("\r\n")
    assert not any(ord(sign) < 32 or ord(sign) == 127 for line in lines for sign in line)
    open_parts: list[str] = []
    for line in lines:
        verb, _, part = line.partition(":")
        if verb == "BEGIN":
            open_parts.append(part)
        elif verb == "END":
            assert open_parts.pop() == part
    assert not open_parts
    names = [re.split("[;:]", line)[0] for line in lines]
    for once in ("UID", "DTSTAMP", "DTEND", "SUMMARY", "LOCATION", "URL", "PRODID", "VERSION"):
        assert names.count(once) == 1, once
    return lines


def value(one: CalendarEntry, name: str) -> str:
    [line] = [line for line in unfolded(one) if re.split("[;:]", line)[0] == name]
    return line.partition(":")[2]


def test_a_show_lasts_three_hours_unless_its_event_file_knows_better() -> None:
    assert "DTEND;TZID=Europe/Berlin:20300504T230000" in unfolded(entry())
    assert "DTEND;TZID=Europe/Berlin:20300506T020000" in unfolded(entry(ends_at=STARTS + timedelta(hours=30)))
    assert "DTEND:20300504T210000Z" in unfolded(entry(zone="UTC"))
    assert "DTEND:20300504T210000Z" in unfolded(entry(zone="+09:00"))


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=400))
def test_every_text_comes_back_from_the_file(name: str, venue: str, description: str) -> None:
    one = entry(name=name, venue=venue, description=description, language="de")
    for text, where in ((name, "SUMMARY"), (venue, "LOCATION"), (description, "DESCRIPTION")):
        if text:
            read = ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value(one, where))
            kept = "".join(" " if sign == "\t" else sign for sign in text if sign in "\t\n" or ord(sign) not in DROPPED)
            assert read == kept


DROPPED = {*range(32), 127, 0x2067, 0x2068, 0x2069}


def offsets(lines: list[str]) -> list[tuple[str, str, str, str]]:
    """Each rule of the zone: its kind, where it begins, and the offsets before and after."""
    start, end = lines.index("BEGIN:VTIMEZONE"), lines.index("END:VTIMEZONE")
    rules = "\n".join(lines[start + 2 : end])
    return re.findall(r"BEGIN:(\w+)\nDTSTART:(\w+)\nTZOFFSETFROM:([+-]\d+)\nTZOFFSETTO:([+-]\d+)\nEND", rules)


def test_the_zone_of_a_night_on_which_the_clocks_change_has_both_offsets() -> None:
    night = entry(starts_at=datetime(2030, 10, 26, 22, 0, tzinfo=UTC), ends_at=datetime(2030, 10, 27, 3, 0, tzinfo=UTC))
    lines = unfolded(night)
    assert "DTSTART;TZID=Europe/Berlin:20301027T000000" in lines
    assert "DTEND;TZID=Europe/Berlin:20301027T040000" in lines
    assert offsets(lines) == [
        ("DAYLIGHT", "19700101T000000", "+0200", "+0200"), ("STANDARD", "20301027T030000", "+0200", "+0100")
    ]  # fmt: skip
    spring = entry(starts_at=datetime(2030, 3, 30, 22, 0, tzinfo=UTC), ends_at=datetime(2030, 3, 31, 3, 0, tzinfo=UTC))
    assert offsets(unfolded(spring)) == [
        ("STANDARD", "19700101T000000", "+0100", "+0100"), ("DAYLIGHT", "20300331T020000", "+0100", "+0200")
    ]  # fmt: skip
    assert len(offsets(unfolded(entry(ends_at=STARTS + SHOW_MAX)))) == 3, "an exhibition of a year"


def test_a_show_ends_after_it_starts_and_within_a_year() -> None:
    for hours in (0, -1, 24 * 367):
        with pytest.raises(ValidationError, match="ends_at must be after starts_at"):
            EventFile.model_validate({**FILE, "ends_at": (STARTS + timedelta(hours=hours)).isoformat()})
    assert EventFile.model_validate({**FILE, "ends_at": (STARTS + timedelta(hours=2)).isoformat()}).ends_at
