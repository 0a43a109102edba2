"""Reads seating plans of pretix: zones with their rows, the seats with what stands on them, and their categories.

The file is read with the line of each part, and checked for seats that nobody could tell apart; `left_out` names every
field of it that an event file has no place for.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.hall.cli.trait_words import marks
from onsale.errors import OperatorError
from onsale.field_sentences import sentence

STAGE_WORDS = re.compile(r"stage|bühne|scène|escenario|palco", re.I)
LINE = "\0line"
_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
PLACES_NAMED_MAX = 3


class PlanPart(BaseModel):
    """An object of the plan, and the line in which it begins."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    line: int = Field(0, alias=LINE)

    @property
    def others(self) -> Mapping[str, Any]:
        """The fields that are not read."""
        return self.model_extra or {}


class Position(PlanPart):
    """Where a part lies, from where the one around it lies."""

    x: float = 0
    y: float = 0


class Seat(PlanPart):
    """A seat; its number is what stands on it."""

    position: Position
    category: str = ""
    seat_number: str = ""
    seat_guid: str = ""


class Row(PlanPart):
    """A row; its number is what stands on it."""

    seats: list[Seat]
    position: Position = Position()
    row_number: str = ""


class Area(PlanPart):
    """Anything that is drawn and is no seat."""

    position: Position
    width: float = 0
    height: float = 0
    text: Any = None
    rectangle: Any = None

    @property
    def title(self) -> str:
        """What is written on it."""
        return str((self.text.get("text") if isinstance(self.text, dict) else self.text) or "")

    @property
    def size(self) -> tuple[float, float]:
        shape = self.rectangle if isinstance(self.rectangle, dict) else {}
        return self.width or shape.get("width", 0), self.height or shape.get("height", 0)

    @property
    def is_stage(self) -> bool:
        return min(self.size) >= 1 and bool(STAGE_WORDS.search(self.title))


class Zone(PlanPart):
    """A part of the hall."""

    name: str = ""
    position: Position = Position()
    rows: list[Row] = Field(max_length=10_000)
    areas: list[Area] = []


class Size(PlanPart):
    """Of the whole plan."""

    width: float
    height: float


class Category(PlanPart):
    """Seats of one price."""

    name: str


class Plan(PlanPart):
    """A seating plan."""

    name: str
    zones: list[Zone] = Field(max_length=1_000)
    size: Size | None = None
    categories: list[Category] = []

    @property
    def stage(self) -> tuple[Zone, Area] | None:
        """The first area that calls itself a stage."""
        return next(((zone, area) for zone in self.zones for area in zone.areas if area.is_stage), None)


class PlacedSeat(NamedTuple):
    """A seat in its row and zone, with the labels that stand there."""

    zone: int
    row: Row
    seat: Seat
    row_label: str
    label: str

    def words(self, plan: Plan) -> str:
        """`zone "Stalls", row A, seat 5 (line 71)`; a drawing's seats have no line."""
        line = f" (line {self.seat.line})" if self.seat.line else ""
        return f"{place(plan, self.zone, self.row_label)}, seat {self.label}{line}"


def place(plan: Plan, zone: int, row_label: str) -> str:
    return f'zone "{plan.zones[zone].name or zone + 1}", row {row_label}'


def read_plan(text: str) -> Plan:
    """Raises `OperatorError`."""
    lines = _lines(text)

    def part(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        line, names = next(lines), [name for name, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise OperatorError(f"not a seating plan: line {line}: {twice} stands twice in one part")
        return {**dict(pairs), LINE: line}

    try:
        document = json.loads(text, object_pairs_hook=part)
    except (json.JSONDecodeError, RecursionError) as broken:
        line = getattr(broken, "lineno", 1)
        raise OperatorError(f"not a seating plan: line {line}: not JSON") from broken
    try:
        return Plan.model_validate(document)
    except ValidationError as refused:
        error = refused.errors()[0]
        field, line = ".".join(map(str, error["loc"])), _line_of(document, error["loc"])
        raise OperatorError(f"not a seating plan: line {line}: {field}: {sentence(error, None)}") from refused


def _lines(text: str) -> Iterator[int]:
    """The lines of the objects of a JSON text, in the order in which they end."""
    opened, line, at = list[int](), 1, 0
    for brace in _BRACE.finditer(text):
        line, at = line + text.count("\n", at, brace.start()), brace.start()
        if brace[0] == "{":
            opened.append(line)
        elif brace[0] == "}":
            yield opened.pop()


def _line_of(document: Any, path: Sequence[str | int]) -> int:
    line = 1
    for part in path:
        line = document.get(LINE, line) if isinstance(document, dict) else line
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            break
    return document.get(LINE, line) if isinstance(document, dict) else line


def seats_of(plan: Plan) -> Iterator[PlacedSeat]:
    """All seats with their labels. A row without a number is counted in its zone, a seat in its row."""
    for n, zone in enumerate(plan.zones):
        for row_n, row in enumerate(zone.rows, 1):
            for seat_n, seat in enumerate(row.seats, 1):
                yield PlacedSeat(n, row, seat, row.row_number or str(row_n), seat.seat_number or str(seat_n))


def require_distinct(plan: Plan) -> None:
    """Raises `OperatorError` if two seats have one guid, or one name on a ticket."""
    guids: dict[str, PlacedSeat] = {}
    names: dict[tuple[str, str, str, str], PlacedSeat] = {}
    for one in seats_of(plan):
        if one.seat.seat_guid and (other := guids.setdefault(one.seat.seat_guid, one)) is not one:
            raise OperatorError(
                f"two seats have the guid {one.seat.seat_guid}: {other.words(plan)} and {one.words(plan)}"
            )
        zone = plan.zones[one.zone].name
        name = zone, "" if zone else one.seat.category, one.row_label, one.label
        if (other := names.setdefault(name, one)) is not one:
            raise OperatorError(
                f"two seats are called the same: {other.words(plan)} and {one.words(plan)}; "
                "give one another number, or its row or zone another name"
            )


def left_out(plan: Plan) -> list[str]:
    """What the plan has and an event file has no place for, a line each."""
    found = [f'"{area.title}" in line {area.line} is not kept: of the areas only the stage is' for area in _areas(plan)]
    found += [
        f"{field} of {len(places)} {kind} is not kept: {'; '.join(places[:PLACES_NAMED_MAX])}"
        f"{'; …' if len(places) > PLACES_NAMED_MAX else ''}"
        for (kind, field), places in _other_fields(plan).items()
    ]
    if any(one.seat.seat_guid for one in seats_of(plan)):
        found.append("seat_guid of the seats is not kept: a seat is called by its section, row and number")
    for what, none in (
        ("row has no number: it is counted in its zone", [r for z in plan.zones for r in z.rows if not r.row_number]),
        ("seat has no number: it is counted in its row", [o.seat for o in seats_of(plan) if not o.seat.seat_number]),
    ):
        if none:
            found.append(f"line {none[0].line}{f' and {len(none) - 1} more' if none[1:] else ''}: the {what}")
    return found


def _areas(plan: Plan) -> Iterator[Area]:
    stage = plan.stage[1] if plan.stage else None
    return (area for zone in plan.zones for area in zone.areas if area is not stage)


def _other_fields(plan: Plan) -> dict[tuple[str, str], list[str]]:
    """By kind of part and field, where fields stand that are not read."""
    found: dict[tuple[str, str], list[str]] = {}

    def note(kind: str, part: PlanPart, where: str) -> None:
        taken = {name for name, _ in marks(part.others)} if kind != "plan" else set()
        for field, value in part.others.items():
            if field not in taken and value not in (None, False, "", [], {}):
                found.setdefault((kind, field), []).append(where)

    note("plan", plan, f"line {plan.line}")
    for category in plan.categories:
        note("categories", category, f'"{category.name}"')
    for n, zone in enumerate(plan.zones):
        note("zones", zone, f'"{zone.name or n + 1}"')
        for row in zone.rows:
            note("rows", row, f"{place(plan, n, row.row_number)} (line {row.line})")
    for one in seats_of(plan):
        note("seats", one.seat, one.words(plan))
    if plan.stage:
        note("stage", plan.stage[1], f"line {plan.stage[1].line}")
    return found
