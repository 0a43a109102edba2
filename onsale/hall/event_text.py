"""Event files as text: puts a map into one without touching anything else, or drafts a new one.

A draft leaves open what a plan cannot know: place, time and prices. It cannot be applied before a person fills them in.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onsale import event_files
from onsale.errors import OperatorError
from onsale.strict_yaml import YamlText, write_yaml
from shared.contracts.event_file import EventFile, SeatedSection

_MAP = re.compile(r"^map:.*?(?=^[^\s]|\Z)", re.M | re.S)
_OPEN = {"venue": "-", "currency": "EUR", "starts_at": "2030-01-01T00:00:00Z"}
HEADER = "# Drafted from {source}. Fill in what is empty: venue, currency, starts_at, and the price of each section.\n"


def parse(path: Path, text: str) -> YamlText:
    """What an event file says, or a draft of one. Raises `OperatorError`."""
    contents = event_files.parse(path, text)
    if not isinstance(contents.value, dict) or not isinstance(contents.value.get("sections"), list):
        raise OperatorError(f"{path}: not an event file: it has no sections")
    return contents


def event_of(path: Path, text: str) -> EventFile:
    """The event, with what a draft leaves open filled in somehow. Raises `OperatorError`."""
    contents = parse(path, text)
    filled = {**_OPEN, **{name: value for name, value in contents.value.items() if value is not None}}
    filled["sections"] = [
        {**section, "price_minor": section.get("price_minor") or 0} if isinstance(section, dict) else section
        for section in filled["sections"]
    ]
    return event_files.validated(path, contents, filled)


def other_labels(event: EventFile, planned: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sections whose rows or seats have other labels in the file than in a plan, and what to write there."""
    own = {section.section_id: section for section in event.sections if isinstance(section, SeatedSection)}
    for fields in planned:
        wanted = SeatedSection.model_validate({**fields, "price_minor": 0})
        if (section := own.get(wanted.section_id)) and section.labels != wanted.labels:
            named = {name: fields[name] for name in ("rows", "seats_per_row", "seats") if name in fields}
            text = write_yaml(named, flow_style=True, width=10_000).strip()
            yield f"{wanted.section_id}: the plan's rows and seats are not kept; to have them, write there {text[1:-1]}"


def with_map(text: str, hall_map: Mapping[str, Any]) -> str:
    """The text with this map; everything else stays, comments too."""
    return f"{_MAP.sub('', text).rstrip()}\n{_dumped({'map': hall_map})}"


def draft(source: str, event: Mapping[str, Any], hall_map: Mapping[str, Any]) -> str:
    """A new event file."""
    return HEADER.format(source=source) + _dumped(event) + _dumped({"map": hall_map})


def _dumped(document: Mapping[str, Any]) -> str:
    return write_yaml(dict(document), flow_style=None, width=200)
