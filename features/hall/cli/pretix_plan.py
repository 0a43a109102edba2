"""Turns seating plans of pretix into sections of an event file: zones with their rows and what stands on the seats.

The file is read with the line of each part, and checked for seats that nobody could tell apart; `left_out` names every
field of it that an event file has no place for. A section has rows of equal length and one category. So a zone's rows
are cut where the category of their seats changes, and neighbouring rows that are cut alike are one section. What rows
as parameters cannot express, such as an aisle in a row, is reported as a distance.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from features.hall.hall_map import DISTANCE_MIN, Point, Rows, row_of_seats
from onsale.errors import OperatorError
from onsale.field_sentences import sentence
from shared.contracts.event_parts.seat_labels import Label, rule_of

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
        """`zone "Stalls", row A, seat 5 (line 71)`."""
        return f"{place(plan, self.zone, self.row_label)}, seat {self.label} (line {self.seat.line})"


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
        for field, value in part.others.items():
            if value not in (None, False, "", [], {}):
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


# -- into sections -----------------------------------------------------------------------------------------------------

DEFAULT_DISTANCE = 20.0
ID_MAX = 28
SECTIONS_MAX = 500
_label = TypeAdapter(Label)


class _Block(NamedTuple):
    """Rows of one zone with the same number of seats and the same category: their seats, and the places of these."""

    zone: str
    category: str
    seats: list[list[PlacedSeat]]
    rows: list[list[tuple[float, float]]]


class ImportedPlan(NamedTuple):
    """An event file's beginning and its map; how far the seats of each section lie from where the plan has them; and
    what the plan has besides, in sentences.
    """

    event: dict[str, Any]
    hall_map: dict[str, Any]
    deviations: dict[str, float]
    left_out: list[str]


def import_plan(text: str) -> ImportedPlan:
    """Raises `OperatorError`."""
    plan = read_plan(text)
    require_distinct(plan)
    blocks = [block for zone in _zones(plan) for block in _blocks(plan, zone)]
    if not blocks:
        raise OperatorError("the plan has no seats")
    if len(blocks) > SECTIONS_MAX:
        raise OperatorError(
            f"the plan has {len(blocks)} runs of rows of equal length and category, and an event {SECTIONS_MAX} "
            "sections at most"
        )
    dx, dy = _offset(blocks)
    moved = [block._replace(rows=[[(x + dx, y + dy) for x, y in row] for row in block.rows]) for block in blocks]
    sections, shapes, deviations = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    for section_id, block in zip(_ids(moved), moved, strict=True):
        rows = _fit(block.rows)
        count, seats = len(block.rows), len(block.rows[0])
        sections.append({
            "section_id": section_id, "name": " · ".join(filter(None, (block.zone, block.category))) or section_id,
            "kind": "seated", **_labels(plan, block), "price_minor": None,
        })  # fmt: skip
        shapes[section_id] = {"outline": _outline(rows, count, seats), "rows": {**rows._asdict(), "at": [*rows.at]}}
        deviations[section_id] = _deviation(rows, block.rows)
    stage = _stage(plan, dx, dy)
    hall_map = {"size": _size(plan, shapes, stage), **({"stage": stage} if stage else {}), "sections": shapes}
    event_id = _slug(plan.name, "-").lower() or "event"
    event = {
        "event_id": event_id, "name": plan.name, "venue": None, "currency": None, "starts_at": None,
        "sections": sections,
    }  # fmt: skip
    return ImportedPlan(event, hall_map, deviations, left_out(plan))


def _zones(plan: Plan) -> Iterator[list[list[PlacedSeat]]]:
    """The rows of each zone. Rows of one number, as beside an aisle, follow each other: all first ones, then the second
    ones, so that each side becomes a section.
    """
    for _, of_zone in itertools.groupby(seats_of(plan), key=lambda one: one.zone):
        rows = [list(seats) for _, seats in itertools.groupby(of_zone, key=lambda one: id(one.row))]
        earlier, nth = Counter[str](), list[int]()
        for row in rows:
            nth.append(earlier[row[0].row_label])
            earlier[row[0].row_label] += 1
        yield [row for _, row in sorted(zip(nth, rows, strict=True), key=lambda numbered: numbered[0])]


def _blocks(plan: Plan, rows: Sequence[list[PlacedSeat]]) -> Iterator[_Block]:
    """Cuts rows where the category changes; rows that are cut alike stay together until one has a number again."""
    group: list[list[list[PlacedSeat]]] = []
    for row in rows:
        runs = [list(run) for _, run in itertools.groupby(row, key=lambda one: one.seat.category)]
        if group and (_cuts(runs) != _cuts(group[-1]) or row[0].row_label in {one[0][0].row_label for one in group}):
            yield from _columns(plan, group)
            group = []
        group.append(runs)
    yield from _columns(plan, group)


def _cuts(runs: Sequence[Sequence[PlacedSeat]]) -> list[tuple[int, str]]:
    return [(len(run), run[0].seat.category) for run in runs]


def _columns(plan: Plan, group: Sequence[Sequence[list[PlacedSeat]]]) -> Iterator[_Block]:
    for column in zip(*group, strict=True):
        first = column[0][0]
        places = [[_place(plan, one) for one in row] for row in column]
        yield _Block(plan.zones[first.zone].name, first.seat.category, list(column), places)


def _place(plan: Plan, one: PlacedSeat) -> tuple[float, float]:
    """Positions of seats are relative to those of their row, and these to those of their zone."""
    parts = plan.zones[one.zone].position, one.row.position, one.seat.position
    return sum(part.x for part in parts), sum(part.y for part in parts)


def _labels(plan: Plan, block: _Block) -> dict[str, Any]:
    """The fields of a section that say what stands on its rows and seats, as briefly as they can."""
    for one in (one for row in block.seats for one in row):
        _require_label(one.row_label, f"line {one.row.line}: {place(plan, one.zone, one.row_label)}")
        _require_label(one.label, one.words(plan))
    names = [row[0].row_label for row in block.seats]
    seats = [[one.label for one in row] for row in block.seats]
    given = [rule_of(labels) or labels for labels in seats]
    usual = Counter(map(str, given)).most_common(1)[0][0]
    common = next(one for one in given if str(one) == usual)
    rows = [name if one == common else {"row": name, "seats": one} for name, one in zip(names, given, strict=True)]
    counted = rows == [str(n) for n in range(1, len(rows) + 1)]
    return {
        "rows": len(rows) if counted else rows, "seats_per_row": len(seats[0]),
        **({} if common == "consecutive" else {"seats": common}),
    }  # fmt: skip


def _require_label(label: str, where: str) -> None:
    try:
        _label.validate_python(label)
    except ValidationError as refused:
        says = refused.errors()[0]["ctx"]["error"]
        raise OperatorError(f"{where}: the number {label!r} cannot stand on a ticket: {says}") from None


def _offset(blocks: Sequence[_Block]) -> tuple[float, float]:
    """Moves a plan that begins beyond its edge, with space for outlines, into positive coordinates."""
    places = [place for block in blocks for row in block.rows for place in row]
    left, top = min(x for x, _ in places), min(y for _, y in places)
    return max(0.0, 2 * DEFAULT_DISTANCE - left), max(0.0, 2 * DEFAULT_DISTANCE - top)


def _ids(blocks: Sequence[_Block]) -> Iterator[str]:
    wanted = [_slug(block.zone, "_").upper()[:ID_MAX] or f"S{n}" for n, block in enumerate(blocks, 1)]
    numbers = Counter[str]()
    for name in wanted:
        numbers[name] += 1
        yield f"{name}_{numbers[name]}" if wanted.count(name) > 1 else name


def _slug(text: str, joiner: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", joiner, text).strip(joiner)[:32].strip(joiner)


def _fit(rows: Sequence[Sequence[tuple[float, float]]]) -> Rows:
    """The rows that come closest, by the mean of the rows' directions, distances and bends."""
    first, last, seats = rows[0][0], rows[-1][0], len(rows[0])
    across = (sum(row[-1][0] - row[0][0] for row in rows), sum(row[-1][1] - row[0][1] for row in rows))
    down = (last[0] - first[0], last[1] - first[1])
    turn = math.atan2(across[1], across[0]) if seats > 1 else (math.atan2(-down[0], down[1]) if any(down) else 0.0)
    cos, sin = math.cos(turn), math.sin(turn)
    spacing = math.hypot(*across) / len(rows) / (seats - 1) if seats > 1 else DEFAULT_DISTANCE
    pitch = (down[1] * cos - down[0] * sin) / (len(rows) - 1) if len(rows) > 1 else DEFAULT_DISTANCE
    middle = seats // 2
    bend = spacing**2 * middle * (seats - 1 - middle)
    bends = [(row[middle][1] - row[0][1]) * cos - (row[middle][0] - row[0][0]) * sin for row in rows]
    curve = sum(bends) / len(bends) / bend if bend else 0.0
    return Rows(
        (round(first[0]), round(first[1])), round(pitch, 2), max(round(spacing, 2), DISTANCE_MIN), round(curve, 6),
        round(math.degrees(turn), 2),
    )  # fmt: skip


def _outline(rows: Rows, count: int, seats: int) -> list[list[int]]:
    """A turned rectangle around the seats, half a seat wider."""
    u_max, margin = rows.spacing * (seats - 1), max(rows.spacing, DEFAULT_DISTANCE / 2) * 0.75
    bend = rows.curve * u_max**2 / 4
    v = sorted((0.0, bend, rows.pitch * (count - 1), rows.pitch * (count - 1) + bend))
    cos, sin = math.cos(math.radians(rows.angle)), math.sin(math.radians(rows.angle))
    corners = ((-margin, v[0] - margin), (u_max + margin, v[0] - margin), (u_max + margin, v[-1] + margin),
               (-margin, v[-1] + margin))  # fmt: skip
    return [
        [max(0, round(rows.at[0] + u * cos - w * sin)), max(0, round(rows.at[1] + u * sin + w * cos))]
        for u, w in corners
    ]


def _deviation(rows: Rows, places: Sequence[Sequence[tuple[float, float]]]) -> float:
    """The largest distance of a seat from its place in the plan."""
    pairs = (
        (seat, place)
        for n, row in enumerate(places)
        for seat, place in zip(row_of_seats(rows, n, len(row)), row, strict=True)
    )
    return round(max(math.dist(seat, place) for seat, place in pairs), 1)


def _stage(plan: Plan, dx: float, dy: float) -> dict[str, Any] | None:
    if plan.stage is None:
        return None
    zone, area = plan.stage
    width, height = area.size
    left, top = zone.position.x + area.position.x + dx, zone.position.y + area.position.y + dy
    return {"at": [round(left + width / 2), round(top + height / 2)], "size": [round(width), round(height)]}


def _size(plan: Plan, shapes: dict[str, Any], stage: dict[str, Any] | None) -> list[int]:
    points: list[Point] = [point for shape in shapes.values() for point in shape["outline"]]
    if stage:
        points.append((stage["at"][0] + stage["size"][0] // 2, stage["at"][1] + stage["size"][1] // 2))
    wanted = (plan.size.width, plan.size.height) if plan.size else (1, 1)
    return [max(math.ceil(wanted[axis]), *(point[axis] for point in points)) for axis in (0, 1)]
