"""Changes event files as texts: map and traits of seats are written, and everything else stays as a person wrote it.

A draft of a new file leaves open what a plan cannot know: place, time and prices. It cannot be applied before a person
fills them in.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from onsale import event_files
from onsale.errors import OperatorError
from onsale.strict_yaml import YamlText, write_yaml
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.event_parts.traits import named

_MAP = re.compile(r"^map:.*?(?=^[^\s]|\Z)", re.M | re.S)
_OPEN = {"venue": "-", "currency": "EUR", "starts_at": "2030-01-01T00:00:00Z"}
HEADER = "# Drafted from {source}. Fill in what is empty: venue, currency, starts_at, and every price.\n"


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
    filled["sections"] = [_priced(section) for section in filled["sections"]]
    return event_files.validated(path, contents, filled)


def _priced(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    levels = part.get("price_levels")
    more = {"price_levels": [_priced(level) for level in levels]} if isinstance(levels, list) else {}
    return {**part, "price_minor": part.get("price_minor") or 0, **more}


def planned(fields: Mapping[str, Any]) -> SeatedSection:
    """A section as a plan has it, its prices filled in somehow."""
    return SeatedSection.model_validate(_priced(fields))


def other_fields(event: EventFile, sections: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sections whose rows, seats or price levels are others in the file than in a plan, and what to write there."""
    own = {section.section_id: section for section in event.sections if isinstance(section, SeatedSection)}
    for fields in (each for each in sections if "rows" in each):
        wanted = planned(fields)
        if (section := own.get(wanted.section_id)) is None:
            continue
        for what, names, differ in (
            ("rows and seats", ("rows", "seats_per_row", "seats"), section.labels != wanted.labels),
            ("price levels", ("price_levels",), _levels(section) != _levels(wanted) and bool(wanted.price_levels)),
        ):
            if differ:
                text = _in_a_line({name: fields[name] for name in names if name in fields})
                yield f"{wanted.section_id}: the plan's {what} are not kept; to have them, write there {text}"
        if fields.get("traits") and _traits_of(section, fields) is None:
            yield f"{wanted.section_id}: the plan's traits are not kept, as its rows and seats are not the file's"


def _levels(section: SeatedSection) -> list[tuple[int, int]]:
    return sorted(section.rows_of(level) for level in section.price_levels)


def with_map(text: str, hall_map: Mapping[str, Any] | None) -> str:
    """The text with this map, or with none; everything else stays, comments too."""
    return f"{_MAP.sub('', text).rstrip()}\n{_dumped({'map': hall_map}) if hall_map else ''}"


def draft(source: str, event: Mapping[str, Any], hall_map: Mapping[str, Any]) -> str:
    """A new event file."""
    return HEADER.format(source=source) + _dumped(event) + _dumped({"map": hall_map})


def _dumped(document: Mapping[str, Any]) -> str:
    return write_yaml(dict(document), flow_style=None, width=200)


def _in_a_line(document: Mapping[str, Any]) -> str:
    """`rows: [A, B], seats_per_row: 5`."""
    return write_yaml(dict(document), flow_style=True, width=100_000).strip()[1:-1]


# -- traits ------------------------------------------------------------------------------------------------------------


def with_traits(text: str, event: EventFile, sections: Sequence[Mapping[str, Any]]) -> str:
    """The text whose sections have the traits of these, by the seats' positions. A trait that none of a section's seats
    has here stays in the file as it is.
    """
    own = {section.section_id: section for section in event.sections}
    wanted = dict[str, Any]()
    for fields in sections:
        section = own.get(fields["section_id"])
        traits = _traits_of(section, fields) if section and fields.get("traits") else None
        if section and traits:
            old = section.model_dump(mode="json")["traits"]
            wanted[section.section_id] = old | traits if isinstance(old, dict) else sorted({*old, *traits})
    for start, end, written in sorted(_edits(text, wanted), reverse=True):
        text = text[:start] + written + text[end:]
    return text


def _traits_of(section: Any, fields: Mapping[str, Any]) -> Any:
    """The traits as the file's own section names them; None if its rows or seats are not those of the plan."""
    if not isinstance(section, SeatedSection):
        return fields["traits"] if isinstance(fields["traits"], list) else None
    if isinstance(fields["traits"], list):
        return {trait: list(section.labels.rows) for trait in fields["traits"]}
    wanted = planned(fields)
    if (wanted.row_count, wanted.seats_per_row) != (section.row_count, section.seats_per_row):
        return None
    width = section.seats_per_row + 1
    return {trait: named(runs, section.labels, width) for trait, runs in wanted.trait_runs.items()}


def _edits(text: str, traits: Mapping[str, Any]) -> Iterator[tuple[int, int, str]]:
    """What to write from where to where: the field `traits` of each of these sections, in the place where it stands or
    behind the section's id.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    for section in next(value for key, value in root.value if key.value == "sections").value:
        pairs = {key.value: (key, value) for key, value in section.value}
        id_key, section_id = pairs["section_id"]
        if section_id.value not in traits:
            continue
        written = _in_a_line({"traits": traits[section_id.value]})
        if "traits" in pairs:
            key, value = pairs["traits"]
            yield key.start_mark.index, _end(value), written
        elif section.flow_style:
            yield section_id.end_mark.index, section_id.end_mark.index, f", {written}"
        else:
            line_ends = text.find("\n", section_id.end_mark.index)
            at = len(text) if line_ends < 0 else line_ends
            yield at, at, f"\n{' ' * id_key.start_mark.column}{written}"


def _end(node: yaml.Node) -> int:
    """Where the last value in the node ends; a block also counts the comments behind it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)
