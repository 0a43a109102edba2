"""The stock API: requests and responses about stock changes, the stock report, drift and oversells.

Counts are places (seats or GA tickets), money is in minor units, times are RFC 3339.
"""

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from features.stock.rules import AllotmentBody, GaPlaces, Places, RowRange
from shared.contracts.admin.inventory import TraitCounts
from shared.contracts.event_file import SEATS_PER_EVENT_MAX
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.fields import Body, EventId, PlainText


class ChangeReason(Body):
    """Why the stock changes: written to the audit log. With `version`, from the stock report, the change is refused if
    somebody else changed the stock since.
    """

    reason: PlainText | None = None
    version: int | None = Field(None, ge=0, le=2**62)


class PlacesChange(Places, ChangeReason):
    """Places to block or to unblock."""


class CapacityChange(ChangeReason):
    """The new capacity of a GA section."""

    capacity: int = Field(ge=0, le=SEATS_PER_EVENT_MAX)


class AllotmentChange(AllotmentBody, ChangeReason):
    """An allotment to create or to replace."""


class StockMove(Places, ChangeReason):
    """Places to move from one allotment to another; null is general sale."""

    from_allotment: EventId | None = None
    to_allotment: EventId | None = None

    @model_validator(mode="after")
    def _elsewhere(self) -> Self:
        if self.from_allotment == self.to_allotment:
            raise ValueError("name an allotment to move from or to; only one of them may be general sale (null)")
        return self


class OversellApproval(Body):
    """Why the latest buyers lose their tickets: stored with the decision."""

    reason: PlainText


class StockChanged(BaseModel):
    """A change of the stock: whether anything changed, the event's version, and how many seats changed."""

    event_id: str
    changed: bool
    version: int
    seats: int


class StockCounts(BaseModel):
    """Places by state. `available` counts those that everybody can buy, `reserved` those that only fans with a code or
    of a lane can; `blocked` counts manually blocked places, `kept_aside` those in other allotments that are not open.
    """

    capacity: int
    available: int
    reserved: int
    held: int
    sold: int
    blocked: int
    kept_aside: int
    revenue_minor: int


class SectionStockReport(StockCounts):
    """One section; `kept_aside_by` counts its places by allotment."""

    section_id: str
    kept_aside_by: dict[str, int]
    traits: dict[Trait, TraitCounts] = Field(default_factory=dict, description="Its places that have a trait.")


class AllotmentReport(BaseModel):
    """An allotment, its places as they were described, and when it opens or opened. How many of them are `kept_aside`,
    or, sold by code or lane, `available`, `held` and `sold`; of one that is open, `sold` before.
    """

    allotment_id: str
    name: str
    kind: Literal["house", "channel", "presale", "buffer"]
    seats: list[str]
    rows: list[RowRange]
    ga: list[GaPlaces]
    codes: list[str]
    lanes: list[int]
    opens_at: datetime | None
    opened_at: datetime | None
    kept_aside: int
    available: int
    held: int
    sold: int


class StockReport(BaseModel):
    """An event's stock at one moment, by section and in total."""

    event_id: str
    version: int
    currency: str
    sections: list[SectionStockReport]
    total: StockCounts
    traits: dict[Trait, TraitCounts] = Field(default_factory=dict, description="All places that have a trait.")
    accessible_release_at: datetime | None = Field(
        None, description="When best available begins to offer wheelchair and companion places to everybody."
    )
    accessible_released_at: datetime | None = Field(None, description="When an operator released them.")
    allotments: list[AllotmentReport]


class UnconfirmedDrift(BaseModel):
    """A difference that this process sees and has not acted on."""

    what: str
    seen: str
    should_be: str
    since: datetime


class RecordedDrift(UnconfirmedDrift):
    """A confirmed difference and what was done about it: `corrected`, or `left` for a later pass or an operator."""

    done: str
    done_at: datetime


class OversellReturn(BaseModel):
    """A buyer who loses their tickets: when they were returned, what orders answered, and when it was refunded."""

    oversell_id: int
    reservation_id: str
    order_reference: str
    returned_at: datetime | None
    refund: str | None
    refunded_at: datetime | None


class OversellCase(BaseModel):
    """A section, or a seat (`position` from 0, else -1), that was sold beyond what it has, and the
    decision about it.
    """

    id: int
    event_id: str
    section_id: str
    position: int
    excess: int
    percent: float
    policy: str
    status: str
    from_buffer: int
    on_paper: int
    found_at: datetime
    decided_by: str | None
    reason: str | None
    ended_at: datetime | None
    returns: list[OversellReturn]


class ReconcileReport(BaseModel):
    """Drift and oversells. `watched` is what this process sees; the rest is the same in every process."""

    watched: list[UnconfirmedDrift]
    found: list[RecordedDrift]
    oversell: list[OversellCase]


class OversellApproved(BaseModel):
    """The reservations that lose their tickets."""

    cancelled: list[str]
