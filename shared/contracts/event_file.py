"""The event file: one YAML document that describes an on-sale, for the queue, inventory and orders alike.

`PUT /admin/{service}/events/{event_id}` takes it whole, as JSON, at each of the three.
"""

from datetime import datetime
from typing import Annotated, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from shared.contracts.allotments import Allotment
from shared.contracts.prices import PriceRules
from shared.contracts.room_options import RoomOptions
from shared.web.fields import Body, Currency, EventId, PlainText, SectionId

SEATS_PER_EVENT_MAX = 1_000_000
PRICE_MINOR_MAX = 100_000_000


def _known(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("not the name of a time zone, as Europe/Berlin is one")
    return name


Timezone = Annotated[str, Field(max_length=64), AfterValidator(_known)]


class RoomPart(RoomOptions):
    """The waiting room. Null times mean now (opening, start) or never (end)."""

    queue_opens_at: AwareDatetime | None = None
    sale_starts_at: AwareDatetime | None = None
    sale_ends_at: AwareDatetime | None = None
    ordering: Literal["fifo", "lottery"] = "fifo"
    rate_per_s: float = Field(50, ge=0, le=100_000, description="0 calls nobody from the next tick on")
    burst: int = Field(50, ge=1, le=100_000, description="calls saved up in a lull at most; a lower rate cuts them too")
    max_active: int = Field(2000, ge=0, le=1_000_000)
    session_s: int = Field(900, ge=10, le=86_400)
    claim_window_s: int = Field(120, ge=5, le=3600)
    liveness_window_s: int = Field(30, ge=2, le=600)
    max_misses: int = Field(2, ge=1, le=100)
    returning_share: float = Field(0.2, ge=0, le=1)
    max_line: int | None = Field(None, ge=1, le=100_000_000)
    stock_coupling: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times: list[datetime] = [t for t in (self.queue_opens_at, self.sale_starts_at, self.sale_ends_at) if t]
        if times != sorted(times):
            raise ValueError("queue_opens_at, sale_starts_at and sale_ends_at must be in that order")
        return self

    @model_validator(mode="after")
    def _lottery_has_rules(self) -> Self:
        if (self.ordering == "lottery") != (self.lottery is not None):
            raise ValueError("ordering: lottery and the part `lottery` come together")
        if self.lottery and self.queue_opens_at and self.lottery.entry_closes_at <= self.queue_opens_at:
            raise ValueError("lottery.entry_closes_at must be after queue_opens_at")
        return self


class OversellPart(Body):
    """What happens when more was sold than there is: `honour` keeps every ticket, from the buffer or on paper;
    `cancel_latest` gives the latest their money back. More than `review_percent` of a section waits for a person.
    """

    policy: Literal["honour", "cancel_latest"] = "honour"
    review_percent: float = Field(5, ge=0, le=100)


class TourPart(Body):
    """How many tickets one customer may have of all events of a tour together. Each event file names the tour and says
    its own limit, usually the same.
    """

    tour_id: EventId
    tickets_per_customer: int = Field(ge=1, le=1000)


class SalesPart(Body):
    """How long a hold lasts and how much one customer may have; 0 means no limit."""

    hold_ttl_s: int = Field(600, ge=5, le=86_400)
    pay_ttl_s: int = Field(300, ge=5, le=86_400)
    grace_s: int = Field(5, ge=0, le=300)
    tickets_per_order: int = Field(6, ge=1, le=100)
    tickets_per_customer: int = Field(6, ge=0, le=1000)
    avoid_single_seats: bool = Field(True, description="best available leaves no single seat if it can")
    active_reservations_per_customer: int = Field(1, ge=0, le=100)
    open_orders_per_customer: int = Field(1, ge=0, le=100)
    tour: TourPart | None = Field(None, description="the tour this event belongs to, with a limit over all its events")
    oversell: OversellPart = OversellPart()
    hold_ttl_b_s: int | None = Field(None, ge=5, le=86_400, description="the other arm of a comparison")
    hold_ttl_b_percent: float = Field(0, ge=0, le=100, description="share of fans who get it")

    @model_validator(mode="after")
    def _an_arm_has_a_length(self) -> Self:
        if self.hold_ttl_b_percent and self.hold_ttl_b_s is None:
            raise ValueError("hold_ttl_b_percent needs hold_ttl_b_s")
        return self


class CheckoutPart(Body):
    """The share of fans whose checkout the background does; the others' is settled in their own request."""

    background_percent: float = Field(100, ge=0, le=100)


class PriceLevel(Body):
    """Some rows of a section, first and last, at a price of their own."""

    name: PlainText
    rows: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)


class SeatedSection(Body):
    """A block of numbered seats: a seat is `{section_id}-{row}-{number}`, both counted from 1."""

    section_id: SectionId
    name: PlainText
    kind: Literal["seated"]
    rows: int = Field(ge=1, le=1000, description="at most 1,000; a larger block is written as two sections")
    seats_per_row: int = Field(ge=1, le=1000, description="at most 1,000; a longer row is written as two sections")
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)
    price_levels: list[PriceLevel] = Field(default_factory=list, max_length=50)

    @property
    def capacity(self) -> int:
        return self.rows * self.seats_per_row

    @model_validator(mode="after")
    def _each_row_has_one_price(self) -> Self:
        last = 0
        for level in sorted(self.price_levels, key=lambda level: level.rows):
            if not last < level.rows[0] <= level.rows[1] <= self.rows:
                raise ValueError(f"price level {level.name!r}: rows must lie in 1 to {self.rows} and not overlap")
            last = level.rows[1]
        return self


class GaSection(Body):
    """General admission: tickets without a seat."""

    section_id: SectionId
    name: PlainText
    kind: Literal["ga"]
    capacity: int = Field(ge=0, le=SEATS_PER_EVENT_MAX)
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)


Section = Annotated[SeatedSection | GaSection, Field(discriminator="kind")]


class EventFile(PriceRules):
    """One on-sale of one show, with its fees and taxes."""

    event_id: EventId
    name: PlainText
    venue: PlainText
    currency: Currency
    starts_at: AwareDatetime
    timezone: Timezone | None = Field(
        None, description="The venue's, by its IANA name. Left out: the offset that starts_at is written with."
    )
    room: RoomPart = RoomPart()
    sales: SalesPart = SalesPart()
    checkout: CheckoutPart | None = Field(None, description="Left out: as it was set by hand.")
    sections: list[Section] = Field(min_length=1, max_length=500)
    allotments: list[Allotment] = Field(default_factory=list, max_length=200)

    @property
    def zone(self) -> str:
        """In which the venue's clock is read: an IANA name, `UTC`, or an offset like `+09:00`."""
        offset = self.starts_at.strftime("%z")
        return self.timezone or ("UTC" if not self.starts_at.utcoffset() else f"{offset[:3]}:{offset[3:5]}")

    @model_validator(mode="after")
    def _one_venue(self) -> Self:
        ids = [section.section_id for section in self.sections]
        if len(set(ids)) != len(ids):
            raise ValueError("every section_id must be unique")
        if sum(section.capacity for section in self.sections) > SEATS_PER_EVENT_MAX:
            raise ValueError(f"an event has at most {SEATS_PER_EVENT_MAX} places")
        return self

    @model_validator(mode="after")
    def _allotments_have_names_of_their_own(self) -> Self:
        ids = [allotment.allotment_id for allotment in self.allotments]
        if len(set(ids)) != len(ids):
            raise ValueError("every allotment_id must be unique")
        return self
