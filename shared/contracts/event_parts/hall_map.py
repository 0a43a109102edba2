"""The map of a hall, as an event file draws it: outlines of sections, and rows as a few numbers."""

import hashlib
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.contracts.fields import Body, SectionId
from shared.rules.hall_layout import COORDINATE_MAX, DISTANCE_MAX, DISTANCE_MIN, Block, Drawn, Rows, edge_seats

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
