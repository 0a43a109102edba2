"""Turns seating plans of pretix into sections of an event file: zones with their rows and what stands on the seats.

A section has rows of equal length and one category. So a zone's rows are cut where the category of their seats changes,
and neighbouring rows that are cut alike are one section. What rows as parameters cannot express, such as an aisle in a
row, is reported as a distance.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from features.hall.cli.plan_file import PlacedSeat, Plan, left_out, place, read_plan, require_distinct, seats_of
from features.hall.hall_layout import DISTANCE_MIN, Point, Rows, row_of_seats
from onsale.errors import OperatorError
from shared.contracts.event_parts.seat_labels import Label, rule_of

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
