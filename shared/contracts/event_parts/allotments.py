"""Allotments: blocked stock with its places, its purpose, and the time when it goes on sale.

Places are named by seat, by rows of a section, or by a number in a general admission (GA) section, or by all three.
"""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Discriminator, Field, Tag, model_validator

from shared.contracts.event_parts.seat_labels import Label
from shared.contracts.fields import Body, EventId, PlainText, SeatId, SectionId

SEATS_NAMED_MAX = 5_000
RANGES_MAX = 500
GA_PLACES_MAX = 500_000

RowName = Annotated[
    Annotated[int, Field(ge=1, le=99_999_999), Tag("number")] | Annotated[Label, Tag("label")],
    Discriminator(lambda value: "number" if isinstance(value, int) else "label"),
]


class RowRange(Body):
    """All seats of the rows of a section from the first to the last given, by their labels."""

    section_id: SectionId
    rows: tuple[RowName, RowName]


class GaPlaces(Body):
    """A number of places of a GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=GA_PLACES_MAX)


class Places(Body):
    """Places of an event, at least one."""

    seats: list[SeatId] = Field(default_factory=list, max_length=SEATS_NAMED_MAX)
    rows: list[RowRange] = Field(default_factory=list, max_length=RANGES_MAX)
    ga: list[GaPlaces] = Field(default_factory=list, max_length=RANGES_MAX)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.seats or self.rows or self.ga):
            raise ValueError("name seats, rows, or places of a GA section")
        return self


class AllotmentBody(Places):
    """Places blocked until `opens_at` or until an operator opens them; a `buffer` serves an oversold section first."""

    name: PlainText
    kind: Literal["house", "channel", "presale", "buffer"]
    opens_at: AwareDatetime | None = None


class Allotment(AllotmentBody):
    """An allotment in the event file."""

    allotment_id: EventId
