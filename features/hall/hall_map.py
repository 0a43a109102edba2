"""The map of a hall: rows as a few numbers; outlines as an event file draws them, or a layout for a hall that nobody
has drawn; and all of it as browsers get it.

Coordinates grow to the right and downwards, as on a screen, and fit into 16 bits. Where seats lie is a pure function:
the same hall has the same layout in every process, today and tomorrow.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from shared.contracts.event_parts.price_types import Trait
from shared.contracts.event_parts.seat_labels import SeatLabels
from shared.contracts.event_parts.traits import Run, joined
from shared.contracts.fields import Body, SectionId

Point = tuple[int, int]
COORDINATE_MAX = 32_767
SPACING, PITCH, MARGIN, GAP = 12, 14, 10, 16
STAGE, FRONT, SPREAD, BORDER = (360, 60), 160, math.radians(150), 40
STANDING_AREA, STANDING_SIDE_MIN, STANDING_SIDE_MAX = 60, 80, 1_200
_FIT_STEPS = 40
DISTANCE_MIN, DISTANCE_MAX = 0.001, 1_000  # between rows, and between seats
SCALES = (1.0, 0.5, 0.25)  # only halls with many rows of a thousand seats need less than the first


class Rows(NamedTuple):
    """The rows of a section. Seat 1 of row 1 is `at`; seats lie `spacing` apart, rows `pitch`. A row bends by
    `curve * u * w` where its ends are `u` and `w` away. `angle` turns all of it around `at`, clockwise, in degrees.
    """

    at: Point
    pitch: float
    spacing: float
    curve: float = 0
    angle: float = 0


class Block(NamedTuple):
    """A section to lay out; without seats in rows if it is general admission."""

    section_id: str
    rows: int
    seats_per_row: int
    capacity: int


class Drawn(NamedTuple):
    """A section on the map: its outline, and its rows if it has any."""

    outline: tuple[Point, ...]
    rows: Rows | None = None


class Hall(NamedTuple):
    """A whole map; `stage` is the centre of the stage."""

    size: Point
    stage: Point
    stage_size: Point
    sections: dict[str, Drawn]


def row_of_seats(rows: Rows, row: int, seats: int) -> Iterator[Point]:
    """The places of the seats of one row, which are numbered from 0."""
    turn, last = math.radians(rows.angle), rows.spacing * (seats - 1)
    cos, sin = math.cos(turn), math.sin(turn)
    for n in range(seats):
        u = rows.spacing * n
        v = rows.pitch * row + rows.curve * u * (last - u)
        yield math.floor(rows.at[0] + u * cos - v * sin + 0.5), math.floor(rows.at[1] + u * sin + v * cos + 0.5)


def edge_seats(rows: Rows, count: int, seats: int) -> list[Point]:
    """The first and the last row: no seat lies further out in any direction."""
    return [*row_of_seats(rows, 0, seats), *row_of_seats(rows, count - 1, seats)]


def is_inside(outline: Sequence[Point], point: Point) -> bool:
    """Whether a polygon contains the point."""
    x, y = point
    inside, (x1, y1) = False, outline[-1]
    for x2, y2 in outline:
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            inside = not inside
        x1, y1 = x2, y2
    return inside


def fit_rows(outline: Sequence[Point], count: int, seats: int) -> Rows:
    """Straight rows that fill an outline: as large as its middle allows, so that the seats of the edges lie inside."""
    left, right = min(x for x, _ in outline), max(x for x, _ in outline)
    top, bottom = min(y for _, y in outline), max(y for _, y in outline)

    def rows(share: float) -> Rows:
        spacing, pitch = (
            round(min(max(length * share, DISTANCE_MIN), DISTANCE_MAX), 3)
            for length in ((right - left) / seats, (bottom - top) / count)
        )
        x, y = (left + right - spacing * (seats - 1)) / 2, (top + bottom - pitch * (count - 1)) / 2
        return Rows((round(x), round(y)), pitch, spacing)

    tried = (rows(step / _FIT_STEPS) for step in range(_FIT_STEPS, 0, -1))
    return next((each for each in tried if all(is_inside(outline, p) for p in edge_seats(each, count, seats))), rows(0))


class _Box(NamedTuple):
    """The space of a section, its front edge towards the stage."""

    block: Block
    width: float
    depth: float


class _Placed(NamedTuple):
    """A box whose front edge lies at a distance from the stage, in a direction: 0 is straight ahead."""

    box: _Box
    distance: float
    direction: float


def arc(blocks: Sequence[Block]) -> Hall:
    """A hall of sections around a stage, in rings: standing areas in front, then the others in their order, or by depth
    where only that fits. No two overlap, and every seat lies inside its section.
    """
    in_order = sorted(blocks, key=lambda block: block.rows > 0)
    by_depth = sorted(in_order, key=lambda block: -block.rows)
    tried = ((in_order, 1.0), *((by_depth, scale) for scale in SCALES))
    halls = [_hall(*tried[0])]
    while max(halls[-1].size) > COORDINATE_MAX and len(halls) < len(tried):
        halls.append(_hall(*tried[len(halls)]))
    return halls[-1]


def _hall(ordered: Iterable[Block], scale: float) -> Hall:
    placed = _place(_box(block, scale) for block in ordered)
    drawn = {each.box.block.section_id: _draw(each, scale) for each in placed}
    points = [(-STAGE[0] // 2, -STAGE[1]), (STAGE[0] // 2, 0)]
    points += [point for section in drawn.values() for point in section.outline]
    left, right = min(x for x, _ in points) - BORDER, max(x for x, _ in points) + BORDER
    top, bottom = min(y for _, y in points) - BORDER, max(y for _, y in points) + BORDER
    sections = {name: _moved(section, -left, -top) for name, section in drawn.items()}
    return Hall((right - left, bottom - top), (-left, -STAGE[1] // 2 - top), STAGE, sections)


def _box(block: Block, scale: float) -> _Box:
    side = min(max(math.sqrt(block.capacity * STANDING_AREA), STANDING_SIDE_MIN), STANDING_SIDE_MAX)
    width, depth = 1.5 * side, side / 1.5
    if block.rows:
        width, depth = SPACING * (block.seats_per_row - 1.0), PITCH * (block.rows - 1.0)
        width, depth = width + 2 * MARGIN, depth + 2 * MARGIN
    return _Box(block, scale * width, scale * depth)


def _place(boxes: Iterable[_Box]) -> Iterator[_Placed]:
    """Each box gets a wedge of its ring that it does not leave, because its front edge is its widest from the stage; a
    ring begins behind the farthest corner of the ring before it.
    """
    rest, distance = list(boxes), float(FRONT)
    while rest:
        wedges, ring = list[float](), list[_Box]()
        for box in rest:
            wedge = 2 * math.atan((box.width + GAP) / 2 / distance)
            if ring and sum(wedges) + wedge > SPREAD:
                break
            wedges.append(wedge)
            ring.append(box)
        direction = -sum(wedges) / 2
        for box, wedge in zip(ring, wedges, strict=True):
            yield _Placed(box, distance, direction + wedge / 2)
            direction += wedge
        del rest[: len(ring)]
        distance = GAP + max(math.hypot(distance + box.depth, box.width / 2) for box in ring)


def _draw(placed: _Placed, scale: float) -> Drawn:
    (block, width, depth), distance, direction = placed
    angle = round(math.degrees(-direction), 2)
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))

    def point(u: float, v: float) -> Point:
        return round(u * cos - v * sin), round(u * sin + v * cos)

    back = distance + depth
    corners = ((-width / 2, distance), (width / 2, distance), (width / 2, back), (-width / 2, back))
    at = point(scale * MARGIN - width / 2, distance + scale * MARGIN)
    rows = Rows(at, scale * PITCH, scale * SPACING, angle=angle) if block.rows else None
    return Drawn(tuple(point(*corner) for corner in corners), rows)


def _moved(section: Drawn, dx: int, dy: int) -> Drawn:
    outline = tuple((x + dx, y + dy) for x, y in section.outline)
    rows = section.rows and section.rows._replace(at=(section.rows.at[0] + dx, section.rows.at[1] + dy))
    return Drawn(outline, rows)


# -- as an event file has it, and browsers get it ----------------------------------------------------------------------

MAP_SEATS_MAX = 100_000
MAP_SECTIONS_MAX = 500
Coordinate = Annotated[int, Field(ge=-COORDINATE_MAX - 1, le=COORDINATE_MAX)]
Length = Annotated[int, Field(ge=1, le=COORDINATE_MAX)]
Position = tuple[Coordinate, Coordinate]
Outline = Annotated[list[Position], Field(min_length=3, max_length=100)]


class HallRows(Body):
    """The rows of a section: where seat 1 of row 1 is, how far apart rows (`pitch`) and seats (`spacing`) are, how much
    rows bend, and by how many degrees all of it is turned clockwise.
    """

    at: Position
    pitch: float = Field(ge=-DISTANCE_MAX, le=DISTANCE_MAX, description="Negative if row 2 lies above row 1.")
    spacing: float = Field(ge=DISTANCE_MIN, le=DISTANCE_MAX)
    curve: float = Field(0, ge=-1, le=1, description="A row bends by curve·u·w where its ends are u and w away.")
    angle: float = Field(0, ge=-360, le=360)


class HallStage(Body):
    """The stage: its centre and its size."""

    at: Position
    size: tuple[Length, Length]


class MapSection(Body):
    """A section on the map. Without `rows`, a seated section fills its outline."""

    outline: Outline
    rows: HallRows | None = None

    def drawn(self) -> Drawn:
        """The section as the layout has it."""
        return Drawn(tuple(self.outline), Rows(**dict(self.rows)) if self.rows else None)


class HallMap(Body):
    """The map of the hall. Coordinates grow to the right and downwards."""

    size: tuple[Length, Length]
    stage: HallStage | None = None
    sections: dict[SectionId, MapSection] = Field(max_length=MAP_SECTIONS_MAX)

    def digest(self) -> str:
        """Names this map in a few characters."""
        return digest(self.model_dump_json().encode())

    def require_fits(self, blocks: Sequence[Block]) -> None:
        """Raises `ValueError` unless the map shows exactly these sections, with all their seats."""
        known = {block.section_id for block in blocks}
        if unknown := sorted(self.sections.keys() - known):
            raise ValueError(f"map.sections: the event has no section {', '.join(unknown[:5])}")
        if missing := sorted(known - self.sections.keys()):
            raise ValueError(f"map.sections: {', '.join(missing[:5])} has no outline")
        if (seats := sum(block.rows * block.seats_per_row for block in blocks)) > MAP_SEATS_MAX:
            raise ValueError(f"map: an event with a map has at most {MAP_SEATS_MAX} numbered seats, not {seats}")
        for block in blocks:
            self._require_inside(block, self.sections[block.section_id])

    def _require_inside(self, block: Block, section: MapSection) -> None:
        place, (width, height) = f"map.sections.{block.section_id}", self.size
        outline, rows = section.drawn()
        if rows and not block.rows:
            raise ValueError(f"{place}: general admission has no rows")
        points = edge_seats(rows, block.rows, block.seats_per_row) if rows else []
        for x, y in (*outline, *points):
            if not (0 <= x <= width and 0 <= y <= height):
                raise ValueError(f"{place}: ({x}, {y}) lies outside of the map, whose size is {width} by {height}")


def digest(encoded: bytes) -> str:
    """Names a map in a few characters."""
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()


class SectionLabels(BaseModel):
    """What stands on a section's rows, and on their seats in the order of `number`: those of row `n` are
    `seats[of_rows[n]]`, as rows of the same seats share one list.
    """

    rows: list[str]
    seats: list[list[str]]
    of_rows: list[int]


class SectionRows(HallRows):
    """The rows of a section, and how many rows and seats per row there are; `labels` is null where both are counted.
    `traits` has by trait the first and the last of its seats, which are counted from 0 through all rows.
    """

    count: int
    seats: int
    labels: SectionLabels | None
    traits: dict[Trait, list[Run]] = {}  # noqa: RUF012 - each has its own


class SectionShape(BaseModel):
    """A section on the map; `rows` is null for general admission."""

    section_id: str
    outline: Outline
    rows: SectionRows | None


class HallGeometry(BaseModel):
    """The whole map. Seats are in map order: by the sections of this list, then by row, then by number."""

    size: tuple[int, int]
    stage: HallStage | None
    sections: list[SectionShape]


class OpenSeats(BaseModel):
    """How many reserved seats are open to a fan, and which of them are free: by section the first and the last, counted
    from 0 through all rows.
    """

    seats: int
    free: dict[str, list[Run]]


SectionTraits = Mapping[Trait, Sequence[Run]]
NO_LABELS: Mapping[str, SeatLabels] = {}
NO_TRAITS: Mapping[str, SectionTraits] = {}


def hall_geometry(
    blocks: Sequence[Block],
    hall_map: HallMap | None,
    labels: Mapping[str, SeatLabels] = NO_LABELS,
    traits: Mapping[str, SectionTraits] = NO_TRAITS,
) -> HallGeometry:
    """The map as it was drawn, or else an arc of sections around the stage; `traits` are runs of positions, by section
    and trait, as an event file gives them.
    """

    def shapes(drawn: Mapping[str, Drawn]) -> list[SectionShape]:
        return [
            _shape(block, drawn[block.section_id], labels.get(block.section_id), traits.get(block.section_id, {}))
            for block in sorted(blocks)
        ]

    if hall_map is None:
        hall = arc(blocks)
        stage = HallStage(at=hall.stage, size=hall.stage_size)
        return HallGeometry(size=hall.size, stage=stage, sections=shapes(hall.sections))
    drawn = {section_id: section.drawn() for section_id, section in hall_map.sections.items()}
    return HallGeometry(size=hall_map.size, stage=hall_map.stage, sections=shapes(drawn))


def _shape(block: Block, drawn: Drawn, labels: SeatLabels | None, traits: SectionTraits) -> SectionShape:
    rows = None
    if block.rows:
        lines = drawn.rows or fit_rows(drawn.outline, block.rows, block.seats_per_row)
        named = labels and SectionLabels(rows=labels.rows, seats=labels.seats, of_rows=labels.of_rows)
        runs = {trait: counted(runs, block.seats_per_row) for trait, runs in traits.items()}
        rows = SectionRows(**lines._asdict(), count=block.rows, seats=block.seats_per_row, labels=named, traits=runs)
    return SectionShape(section_id=block.section_id, outline=list(drawn.outline), rows=rows)


def counted(runs: Iterable[Run], seats: int) -> list[Run]:
    """Runs of positions, of which each row has one more than seats, as runs of seats."""

    def seat(position: int) -> int:
        row, number = divmod(position, seats + 1)
        return row * seats + min(number, seats - 1)

    return joined((seat(first), seat(last)) for first, last in runs)
