"""What the feature adds to the event file: the map of the hall, and the brand."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field, model_validator

from features.hall.brand import Brand, picture_file
from features.hall.hall_map import Block, HallMap
from shared.contracts.file_parts import EventFields


class HallFields(EventFields):
    """The fields `map` and `brand` of an event file."""

    map: HallMap | None = Field(None, description="Default: the sections are laid out around a stage.")
    brand: Brand | None = Field(None, description="Default: the pages look as they are shipped.")

    @model_validator(mode="after")
    def _map_fits(self: Any) -> Any:
        if self.map is not None:
            self.map.require_fits(blocks_of(self.sections))
        return self

    @property
    def files(self) -> list[str]:
        """The names of the pictures that lie beside the file."""
        return [*super().files, *(self.brand.files if self.brand else ())]

    def check_file(self, content: bytes) -> None:
        """Raises `ValueError` for what is no picture."""
        picture_file(content)


def blocks_of(sections: Iterable[Any]) -> list[Block]:
    """The sections of an event file as a map shows them."""
    return [
        Block(s.section_id, s.row_count, s.seats_per_row, s.capacity)
        if s.kind == "seated"
        else Block(s.section_id, 0, 0, s.capacity)
        for s in sections
    ]
