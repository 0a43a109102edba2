"""Parts of the event file: allotments, which are stock kept aside, with its places, its purpose, who may buy it, and
the time when everybody may; and the oversell policy.

Places are named by seat, by rows of a section, or by a number in a general admission (GA) section, or by all three.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from shared.contracts.admin.checks import Check, broken, suspicious
from shared.contracts.event_parts.price_types import CODES_MAX
from shared.contracts.event_parts.seat_labels import RowName
from shared.contracts.fields import Body, EventId, NewCode, PlainText, SeatId, SectionId
from shared.contracts.file_parts import EventFields

SEATS_NAMED_MAX = 5_000
RANGES_MAX = 500
GA_PLACES_MAX = 500_000
OVERDUE = timedelta(minutes=1)  # they are opened every second


class RowRange(Body):
    """All seats of the rows of a section from the first to the last given, by their labels."""

    section_id: SectionId
    rows: tuple[RowName, RowName]


class GaPlaces(Body):
    """A number of places of a GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=GA_PLACES_MAX)


class NoPlaces(Body):
    """Places of an event, or none."""

    seats: list[SeatId] = Field(default_factory=list, max_length=SEATS_NAMED_MAX)
    rows: list[RowRange] = Field(default_factory=list, max_length=RANGES_MAX)
    ga: list[GaPlaces] = Field(default_factory=list, max_length=RANGES_MAX)


class Places(NoPlaces):
    """Places of an event, at least one."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.seats or self.rows or self.ga):
            raise ValueError("name seats, rows, or places of a GA section")
        return self


class AllotmentBody(NoPlaces):
    """Places kept aside until `opens_at` or until an operator opens them: with `codes` or `lanes` they are sold to who
    has one, else they are blocked. A `buffer` serves an oversold section first. Without places it waits for some.
    """

    name: PlainText
    kind: Literal["house", "channel", "presale", "buffer"]
    opens_at: AwareDatetime | None = None
    codes: list[NewCode] = Field(
        default_factory=list,
        max_length=CODES_MAX,
        description="Sold to fans who name one of these codes; promo codes may be among them.",
    )
    lanes: list[Annotated[int, Field(ge=0, le=15)]] = Field(
        default_factory=list, max_length=16, description="Sold to fans who came by one of these lanes."
    )

    @property
    def is_by_code(self) -> bool:
        """Whether it is sold to some fans before it opens to all."""
        return bool(self.codes or self.lanes)

    @model_validator(mode="after")
    def _buffer_is_blocked(self) -> Self:
        if self.kind == "buffer" and self.is_by_code:
            raise ValueError("a buffer is for oversold sections, so nobody buys it: give it no codes and no lanes")
        return self


class Allotment(AllotmentBody):
    """An allotment in the event file."""

    allotment_id: EventId


class EventAllotments(EventFields):
    """What an event file has of allotments."""

    allotments: list[Allotment] = Field(default_factory=list, max_length=200)

    def findings(self, *, sale_ends_at: datetime | None, starts_at: datetime, now: datetime) -> list[Check]:
        """Of those that are not open."""
        found = super().findings(sale_ends_at=sale_ends_at, starts_at=starts_at, now=now)
        for allotment in self.allotments:
            subject, opens_at = f"Allotment {allotment.allotment_id}", allotment.opens_at
            if opens_at is None:
                continue
            if sale_ends_at and opens_at >= sale_ends_at:
                advice = "Nobody can buy its places: open it earlier, or end the sale later."
                found.append(broken(subject, "opens after the sale has ended", advice))
            elif opens_at >= starts_at:
                found.append(suspicious(subject, "opens after the show has begun", "Open it earlier: `onsale stock`."))
            elif opens_at < now - OVERDUE:
                found.append(broken(subject, f"was to open at {opens_at:%Y-%m-%d %H:%M}", "See the log of inventory."))
        return found

    @model_validator(mode="after")
    def _allotment_ids_are_unique(self) -> Self:
        ids = [allotment.allotment_id for allotment in self.allotments]
        if len(set(ids)) != len(ids):
            raise ValueError("every allotment_id must be unique")
        return self


class OversellPart(Body):
    """The oversell policy: `honour` keeps every ticket, from the buffer or by overbooking; `cancel_latest` refunds the
    latest orders. If more than `review_percent` of a section is oversold, an operator decides.
    """

    policy: Literal["honour", "cancel_latest"] = "honour"
    review_percent: float = Field(5, ge=0, le=100)


class SalesOversell(Body):
    """What the sales of an event file have of it; stored in the event's column of the same name."""

    oversell: OversellPart = OversellPart()
