"""The map of a hall: as an event file draws it, by outlines of sections and rows as a few numbers, and as browsers get
it, drawn or laid out by itself.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from features.hall.hall_layout import (
    COORDINATE_MAX,
    DISTANCE_MAX,
    DISTANCE_MIN,
    Block,
    Drawn,
    Rows,
    arc,
    edge_seats,
    fit_rows,
)
from shared.contracts.event_parts.seat_labels import SeatLabels
from shared.contracts.fields import Body, SectionId

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
    """The rows of a section, and how many rows and seats per row there are; `labels` is null where both are counted."""

    count: int
    seats: int
    labels: SectionLabels | None


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


NO_LABELS: Mapping[str, SeatLabels] = {}


def hall_geometry(
    blocks: Sequence[Block], hall_map: HallMap | None, labels: Mapping[str, SeatLabels] = NO_LABELS
) -> HallGeometry:
    """The map as it was drawn, or else an arc of sections around the stage."""
    if hall_map is None:
        hall = arc(blocks)
        stage = HallStage(at=hall.stage, size=hall.stage_size)
        return HallGeometry(size=hall.size, stage=stage, sections=_shapes(blocks, hall.sections, labels))
    drawn = {section_id: section.drawn() for section_id, section in hall_map.sections.items()}
    return HallGeometry(size=hall_map.size, stage=hall_map.stage, sections=_shapes(blocks, drawn, labels))


def _shapes(
    blocks: Sequence[Block], drawn: Mapping[str, Drawn], labels: Mapping[str, SeatLabels]
) -> list[SectionShape]:
    return [_shape(block, drawn[block.section_id], labels.get(block.section_id)) for block in sorted(blocks)]


def _shape(block: Block, drawn: Drawn, labels: SeatLabels | None) -> SectionShape:
    rows = None
    if block.rows:
        lines = drawn.rows or fit_rows(drawn.outline, block.rows, block.seats_per_row)
        named = labels and SectionLabels(rows=labels.rows, seats=labels.seats, of_rows=labels.of_rows)
        rows = SectionRows(**lines._asdict(), count=block.rows, seats=block.seats_per_row, labels=named)
    return SectionShape(section_id=block.section_id, outline=list(drawn.outline), rows=rows)
