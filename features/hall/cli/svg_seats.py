"""Turns a drawing (SVG) into the map of an event file, or into a draft of one: outlines, and seats if they are drawn.

A seat is an element with `data-seat` and `data-row` (its own, or of a group around it), or one that is called like a
seat's id, such as `STALLS-A-1`. Seats become sections as those of a seating plan do. Categories and traits are what
`data-` attributes, classes, labels and titles say.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from features.hall.cli.event_text import planned
from features.hall.cli.plan_sections import Choices, ImportedPlan, id_of, sections_of
from features.hall.cli.pretix_plan import Plan
from features.hall.cli.svg_outlines import (
    Drawing,
    Place,
    Shape,
    left_out,
    named_shapes,
    names_of,
    outline_of,
    read_drawing,
    stage_of,
)
from features.hall.cli.trait_words import NAMES, marks, traits_in
from features.hall.hall_map import is_inside
from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.fields import LABEL

_SEAT = ("data-seat", "data-seat-number", "data-seat-label")
_ROW = ("data-row", "data-row-number", "data-row-label", "data-row-name")
_ZONE = ("data-section", "data-zone", "data-block", "data-area")
_CATEGORY = ("data-category", "data-price-category", "data-category-name")
_seat_id = re.compile(rf"(.+)-({LABEL})-({LABEL})")
_class = re.compile(r"(?:cat|category|kategorie|catégorie|categoria|price|tarif)[-_]+(\S+)", re.I)
_by_program = re.compile(r"(layer|ebene|calque|capa|g|group|svg)[\s_-]?\d*", re.I)


class DrawnSeat(NamedTuple):
    """A seat of a drawing; `fields` are its marks."""

    element: ET.Element
    at: Place
    zone: str
    row: str
    number: str
    category: str
    fields: dict[str, Any]


def draft_of(text: str, name: str, choices: Choices) -> ImportedPlan:
    """A new event's sections, from a drawing with seats. Raises `OperatorError`."""
    drawing = read_drawing(text)
    seats = list(_seats(drawing, _Zones({name for element in drawing.root.iter() for name in names_of(element)}, ())))
    shapes = _outlines(drawing, seats)
    if not seats:
        raise OperatorError(
            "the drawing has no seats, so it needs an event file with the sections: a seat has the attributes data-row "
            "and data-seat, or an id such as STALLS-A-1 beside a shape or group STALLS"
        )
    found = sections_of(_plan(drawing.title or name, drawing, seats, shapes), choices, is_moved=False)
    ids = found.hall_map["sections"].keys()
    used = {key: shape for key, shape in shapes.items() if key == "stage" or id_of(key) in ids}
    used = {key: shape for key, shape in used.items() if _holds(shape, [seat for seat in seats if seat.zone == key])}
    outlines = {id_of(key): {"outline": outline_of(key, shape)} for key, shape in used.items() if key != "stage"}
    sections = {key: shape | outlines.get(key, {}) for key, shape in found.hall_map["sections"].items()}
    hall_map = {**found.hall_map, **stage_of(shapes), "sections": sections}
    rest = [*found.left_out, *left_out(drawing, used, [seat.element for seat in seats])]
    return found._replace(hall_map=hall_map, left_out=rest)


def map_of(text: str, event: EventFile, choices: Choices) -> ImportedPlan:
    """The map of an event file that has the sections, and their traits. Raises `OperatorError`."""
    drawing = read_drawing(text)
    own = {section.section_id: section for section in event.sections}
    seats = [seat for seat in _seats(drawing, _Zones(own.keys(), own.keys())) if seat.zone in own]
    shapes = _outlines(drawing, seats)
    categories = {seat.category for seat in seats}
    choices.require_known(categories | {_category(_named_parts(shapes[each], each)) for each in own if each in shapes})
    if choices.prices:
        raise OperatorError("--price is for a new event file: a drawing leaves the prices of this one as they are")
    found = _fitted(
        drawing, seats, shapes, event, {each: choices.traits[each] for each in choices.traits if each in categories}
    )
    sections, drawn, taken, rest = list[dict[str, Any]](), dict[str, Any](), list(found.taken), list(found.left_out)
    by_id = {fields["section_id"]: fields for fields in found.event["sections"]}
    for section_id, section in own.items():
        fields, shape = by_id.get(id_of(section_id)), shapes.get(section_id)
        of_section = [seat for seat in seats if seat.zone == section_id]
        if shape and not _holds(shape, of_section):
            del shapes[section_id]
            shape = None
        drawn[section_id] = found.hall_map["sections"][id_of(section_id)] if _fits(section, fields) else {}
        if shape:
            drawn[section_id] |= {"outline": outline_of(section_id, shape)}
            if traits := _traits_of(shape, section_id, choices):
                taken.append(f"{section_id} is taken as places {', '.join(NAMES[trait] for trait in traits)}")
                sections.append({"section_id": section_id, "traits": traits})
        if fields:
            sections.append({**fields, "section_id": section_id})
        if of_section and "rows" not in drawn[section_id]:
            rest.append(f"{section_id}: the seats of the drawing are not those of the file: only its outline is kept")
    if missing := sorted(section_id for section_id, each in drawn.items() if not each):
        raise OperatorError(f"the drawing has no shape with the id {', '.join(missing[:5])}")
    used = {name: shape for name, shape in shapes.items() if name in {*own, "stage"}}
    hall_map = {"size": list(drawing.size), **stage_of(shapes), "sections": drawn}
    rest += left_out(drawing, used, [seat.element for seat in seats])
    return ImportedPlan({"sections": sections}, hall_map, found.deviations, taken, rest)


def _outlines(drawing: Drawing, seats: Sequence[DrawnSeat]) -> dict[str, Shape]:
    """The shapes by name that are no seats."""
    of_seats = {id(part) for seat in seats for part in seat.element.iter()}
    return named_shapes(shape for shape in drawing.shapes if id(shape.element) not in of_seats)


def _holds(shape: Shape, seats: Sequence[DrawnSeat]) -> bool:
    """Whether the seats lie inside: another shape of their group is no outline."""
    outline = [(round(x), round(y)) for x, y in shape.places]
    return all(is_inside(outline, (round(seat.at[0]), round(seat.at[1]))) for seat in seats)


def _fitted(
    drawing: Drawing,
    seats: Sequence[DrawnSeat],
    shapes: Mapping[str, Shape],
    event: EventFile,
    traits: Mapping[str, Trait | None],
) -> ImportedPlan:
    """The seats as sections of the file. Prices are those of the file, so no category cuts a row."""
    if not seats:
        return ImportedPlan({"sections": []}, {"sections": {}}, {}, [], [])
    categories = list(dict.fromkeys(seat.category for seat in seats))
    one_price = dict.fromkeys(categories, categories[0])
    plan = _plan(event.name, drawing, seats, shapes)
    found = sections_of(plan, Choices(traits, one_price), is_moved=False)
    priced = [f'"{category}"' for category in categories if category]
    says = [f"the categories {', '.join(priced)} have no price here: prices are those of the file"] if priced else []
    return found._replace(
        taken=[line for line in found.taken if not line.startswith("the price of")], left_out=[*found.left_out, *says]
    )


def _fits(section: Any, fields: Mapping[str, Any] | None) -> bool:
    if fields is None or not isinstance(section, SeatedSection):
        return False
    wanted = planned(fields)
    return (wanted.row_count, wanted.seats_per_row) == (section.row_count, section.seats_per_row)


def _plan(name: str, drawing: Drawing, seats: Sequence[DrawnSeat], shapes: Mapping[str, Shape]) -> Plan:
    """The seats as a seating plan: rows from the stage, or from above; seats from the left."""
    front = shapes["stage"].middle if "stage" in shapes else None
    zones: dict[str, dict[str, list[DrawnSeat]]] = {}
    for seat in seats:
        zones.setdefault(seat.zone, {}).setdefault(seat.row, []).append(seat)
    return Plan.model_validate({
        "name": name, "size": {"width": drawing.size[0], "height": drawing.size[1]},
        "zones": [
            {"name": zone, "rows": [_row(row, of_row) for row, of_row in _from_the_front(rows, front)]}
            for zone, rows in zones.items()
        ],
    })  # fmt: skip


def _from_the_front(rows: Mapping[str, list[DrawnSeat]], front: Place | None) -> list[tuple[str, list[DrawnSeat]]]:
    def distance(row: tuple[str, list[DrawnSeat]]) -> float:
        x, y = (sum(seat.at[axis] for seat in row[1]) / len(row[1]) for axis in (0, 1))
        return y if front is None else (x - front[0]) ** 2 + (y - front[1]) ** 2

    return sorted(rows.items(), key=distance)


def _row(label: str, seats: Sequence[DrawnSeat]) -> dict[str, Any]:
    wide, high = (max(seat.at[axis] for seat in seats) - min(seat.at[axis] for seat in seats) for axis in (0, 1))
    axis = 0 if wide >= high else 1
    return {
        "row_number": label,
        "seats": [
            {**seat.fields, "position": {"x": seat.at[0], "y": seat.at[1]}, "category": seat.category,
             "seat_number": seat.number}
            for seat in sorted(seats, key=lambda seat: seat.at[axis])
        ],
    }  # fmt: skip


class _Zones(NamedTuple):
    """What a seat's id may begin with, and the ids of a file's own sections, which groups may be called by."""

    names: Collection[str]
    own: Collection[str]


def _seats(drawing: Drawing, zones: _Zones) -> Iterator[DrawnSeat]:
    """Each seat once, at its first shape."""
    found = set[int]()
    for shape in drawing.shapes:
        parts = (shape.element, *shape.around)
        for n, element in enumerate(parts):
            if seat := _seat(parts[n:], shape.middle, zones):
                if id(element) not in found:
                    found.add(id(element))
                    yield seat
                break


def _seat(parts: Sequence[ET.Element], at: Place, zones: _Zones) -> DrawnSeat | None:
    """The first of these parts as a seat, if it is one; the others are the groups around it."""
    element, *around = parts
    number, row = _first([element], _SEAT), _first(parts, _ROW)
    zone = _first(parts, _ZONE) or _zone_around(around, zones.own)
    for name in () if number and row else names_of(element):
        if (found := _seat_id.fullmatch(name)) and found[1] in zones.names:
            zone, row, number = found.groups()
    if not (number and row):
        return None
    return DrawnSeat(element, at, zone, row=row, number=number, category=_category(parts), fields=_marks(parts))


def _zone_around(around: Sequence[ET.Element], own: Collection[str]) -> str:
    """The innermost group that is called like a section, or else like anything but a row."""
    named = [names for each in around if not _first([each], _ROW) and (names := names_of(each))]
    known = next((name for names in named for name in names if name in own), "")
    shown = (name for names in named for name in names[::-1] if not _by_program.fullmatch(name))
    return known or next(shown, "")


def _first(parts: Sequence[ET.Element], attributes: Sequence[str]) -> str:
    return next((value.strip() for part in parts for name in attributes if (value := part.get(name))), "")


def _category(parts: Sequence[ET.Element]) -> str:
    classes = (
        found[1] for part in parts for each in part.get("class", "").split() if (found := _class.fullmatch(each))
    )
    return _first(parts, _CATEGORY) or next(classes, "")


def _marks(parts: Sequence[ET.Element]) -> dict[str, Any]:
    """The fields that say a trait, of an element and of the groups around it; a category says it by itself."""
    found: dict[str, Any] = {}
    for part in parts:
        fields: dict[str, Any] = {"aria-label": part.get("aria-label", "")}
        fields |= {f'class "{each}"': each for each in part.get("class", "").split() if not _class.fullmatch(each)}
        fields |= {f'"{name}"': name for name in names_of(part)}
        fields |= {name: value or "true" for name, value in part.attrib.items() if name.startswith("data-")}
        found |= {name: fields[name] for name, _ in marks(fields) if name not in (*_CATEGORY, *_ZONE)}
    return found


def _named_parts(shape: Shape, section_id: str) -> list[ET.Element]:
    """An outline, and the group around it if the group is called like the section."""
    return [shape.element, *(each for each in shape.around if section_id in names_of(each))]


def _traits_of(shape: Shape, section_id: str, choices: Choices) -> list[Trait]:
    """What an outline says of all of its section's places."""
    parts = _named_parts(shape, section_id)
    category = _category(parts)
    found = {trait for _, traits in marks(_marks(parts)) for trait in traits}
    if category not in choices.traits:
        found |= traits_in(category)
    elif trait := choices.traits[category]:
        found.add(trait)
    return sorted(found)
