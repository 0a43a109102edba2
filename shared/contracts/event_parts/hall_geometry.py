"""The map of a hall, as browsers get it: drawn by the event file, or laid out by itself."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from shared.contracts.event_parts.hall_map import HallMap, HallRows, HallStage, Outline
from shared.contracts.event_parts.seat_labels import SeatLabels
from shared.rules.hall_layout import Block, Drawn, arc, fit_rows


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
