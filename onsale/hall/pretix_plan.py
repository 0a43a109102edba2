"""Reads seating plans of pretix (JSON): zones become sections, their rows become parameters.

A section has rows of equal length and one category, so a zone is cut wherever that changes. What rows as parameters
cannot express, such as an aisle in a row, is reported as a distance.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onsale.errors import OperatorError
from shared.rules.hall_layout import DISTANCE_MIN, Point, Rows, row_of_seats
from shared.web.fields import refusal

STAGE_WORDS = re.compile(r"stage|bühne|scène|escenario|palco", re.I)
DEFAULT_DISTANCE = 20.0
ID_MAX = 28


class _Position(BaseModel):
    x: float = 0
    y: float = 0


class _Seat(BaseModel):
    position: _Position
    category: str = ""


class _Row(BaseModel):
    seats: list[_Seat]
    position: _Position = _Position()


class _Area(BaseModel):
    model_config = ConfigDict(extra="allow")

    position: _Position
    width: float = 0
    height: float = 0
    text: Any = None


class _Zone(BaseModel):
    name: str = ""
    position: _Position = _Position()
    rows: list[_Row] = Field(max_length=10_000)
    areas: list[_Area] = []


class _Size(BaseModel):
    width: float
    height: float


class _Plan(BaseModel):
    name: str
    zones: list[_Zone] = Field(max_length=1_000)
    size: _Size | None = None


class _Block(NamedTuple):
    """Rows of one zone with the same number of seats and the same category; each a list of places."""

    zone: str
    category: str
    rows: list[list[tuple[float, float]]]


class ImportedPlan(NamedTuple):
    """An event file's beginning and its map; how far the seats of each section lie from where the plan has them."""

    event: dict[str, Any]
    hall_map: dict[str, Any]
    deviations: dict[str, float]


def import_plan(text: str) -> ImportedPlan:
    """Raises `OperatorError`."""
    try:
        plan = _Plan.model_validate_json(text)
    except ValidationError as refused:
        error = refused.errors()[0]
        raise OperatorError(
            f"not a seating plan: {'.'.join(map(str, error['loc']))}: {refusal(error['msg'])}"
        ) from refused
    blocks = [block for zone in plan.zones for block in _blocks(zone)]
    if not blocks:
        raise OperatorError("the plan has no seats")
    dx, dy = _offset(blocks)
    moved = [block._replace(rows=[[(x + dx, y + dy) for x, y in row] for row in block.rows]) for block in blocks]
    sections, shapes, deviations = list[dict[str, Any]](), dict[str, Any](), dict[str, float]()
    for section_id, block in zip(_ids(moved), moved, strict=True):
        rows = _fit(block.rows)
        count, seats = len(block.rows), len(block.rows[0])
        sections.append({
            "section_id": section_id, "name": " · ".join(filter(None, (block.zone, block.category))) or section_id,
            "kind": "seated", "rows": count, "seats_per_row": seats, "price_minor": None,
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
    return ImportedPlan(event, hall_map, deviations)


def _blocks(zone: _Zone) -> Iterator[_Block]:
    rows = [row for row in zone.rows if row.seats]
    for (_, category), same in itertools.groupby(rows, key=lambda row: (len(row.seats), _category(row))):
        yield _Block(zone.name, category, [_places(zone, row) for row in same])


def _category(row: _Row) -> str:
    return Counter(seat.category for seat in row.seats).most_common(1)[0][0]


def _places(zone: _Zone, row: _Row) -> list[tuple[float, float]]:
    """Positions of seats are relative to those of their row, and these to those of their zone."""
    left, top = zone.position.x + row.position.x, zone.position.y + row.position.y
    return [(left + seat.position.x, top + seat.position.y) for seat in row.seats]


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


def _stage(plan: _Plan, dx: float, dy: float) -> dict[str, Any] | None:
    """The first area that calls itself a stage."""
    for zone in plan.zones:
        for area in zone.areas:
            text = area.text.get("text") if isinstance(area.text, dict) else area.text
            shape = (area.model_extra or {}).get("rectangle") or {}
            width, height = area.width or shape.get("width", 0), area.height or shape.get("height", 0)
            if width >= 1 and height >= 1 and STAGE_WORDS.search(str(text or "")):
                left, top = zone.position.x + area.position.x + dx, zone.position.y + area.position.y + dy
                return {
                    "at": [round(left + width / 2), round(top + height / 2)], "size": [round(width), round(height)],
                }  # fmt: skip
    return None


def _size(plan: _Plan, shapes: dict[str, Any], stage: dict[str, Any] | None) -> list[int]:
    points: list[Point] = [point for shape in shapes.values() for point in shape["outline"]]
    if stage:
        points.append((stage["at"][0] + stage["size"][0] // 2, stage["at"][1] + stage["size"][1] // 2))
    wanted = (plan.size.width, plan.size.height) if plan.size else (1, 1)
    return [max(math.ceil(wanted[axis]), *(point[axis] for point in points)) for axis in (0, 1)]
