"""Inventory's admin API: requests and responses about events, holds, stock changes, drift and oversells.

Counts are places (seats or GA tickets), money is in minor units, times are RFC 3339 unless a name ends in `_s` or
`_ms`.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from shared.contracts.event_file import SEATS_PER_EVENT_MAX
from shared.contracts.event_parts.allotments import AllotmentBody, GaPlaces, Places, RowRange
from shared.contracts.fields import Body, PlainText
from shared.contracts.frames import ReservationState


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


class ReconcileRequest(Body):
    """Why stock is compared now: written to the audit log."""

    reason: PlainText | None = None


class OversellApproval(Body):
    """Why the latest buyers lose their tickets: stored with the decision."""

    reason: PlainText


class HoldsRelease(Body):
    """Why fans lose what they hold: written to the audit log."""

    reason: PlainText


class EventApplied(BaseModel):
    """What applying an event file did: whether anything changed, and how large the event is."""

    event_id: str
    changed: bool
    sections: int
    capacity: int
    dry_run: bool


class PictureStored(BaseModel):
    """A picture of an event as it is stored, and whether that changed anything."""

    event_id: str
    name: str
    changed: bool
    media_type: str
    width: int
    height: int
    digest: str


class HoldsReleased(BaseModel):
    """How many holds were released."""

    released: int


class ReservationReleased(BaseModel):
    """A reservation after its release; one that had ended before keeps its status."""

    reservation_id: str
    status: ReservationState


class StockChanged(BaseModel):
    """A change of the stock: whether anything changed, the event's version, and how many seats changed."""

    event_id: str
    changed: bool
    version: int
    seats: int


class StockCounts(BaseModel):
    """Places by state. `blocked` counts manually blocked places, `kept_aside` those in allotments that are not open."""

    capacity: int
    available: int
    held: int
    sold: int
    blocked: int
    kept_aside: int
    revenue_minor: int


class SectionStockReport(StockCounts):
    """One section; `kept_aside_by` counts its places by allotment."""

    section_id: str
    kept_aside_by: dict[str, int]


class AllotmentReport(BaseModel):
    """An allotment, its places as they were described, and when it opens or opened."""

    allotment_id: str
    name: str
    kind: Literal["house", "channel", "presale", "buffer"]
    seats: list[str]
    rows: list[RowRange]
    ga: list[GaPlaces]
    opens_at: datetime | None
    opened_at: datetime | None


class StockReport(BaseModel):
    """An event's stock at one moment, by section and in total."""

    event_id: str
    version: int
    currency: str
    sections: list[SectionStockReport]
    total: StockCounts
    allotments: list[AllotmentReport]


class HistogramBucket(BaseModel):
    """Holds between two edges in seconds; the last bucket has no end."""

    from_s: int
    to_s: int | None
    holds: int


class HoldTimeDistribution(BaseModel):
    """Seconds after the hold, as percentiles (by number, empty without holds) and as a histogram."""

    holds: int
    percentiles_s: dict[str, float]
    histogram: list[HistogramBucket]


class ShareEstimate(BaseModel):
    """A share, or the difference of two, with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class ReturningHolders(BaseModel):
    """Holders whose hold ended unpaid, those who held again, and those who then bought."""

    left: int
    returned: int
    bought: int
    share: ShareEstimate | None


class HoldTtlSuggestion(BaseModel):
    """The shortest hold in which `kept_percent` of the buyers began to pay; null while there are too few buyers."""

    hold_ttl_s: int | None
    now_s: int
    kept_percent: int
    buyers: int
    buyers_min: int
    late_percent: float


class VariantConversion(BaseModel):
    """Holders of one variant of `hold_ttl_s`: how many, how many bought, and how many have no outcome yet."""

    arm: str
    hold_ttl_s: int | None
    fans: int
    bought: int
    open: int
    conversion: ShareEstimate | None


class VariantDifference(ShareEstimate):
    """How much more of b's holders buy than of a's, and what that shows."""

    verdict: Literal["b sells more", "a sells more", "no difference shown"]


class HoldTimesReport(BaseModel):
    """How long holders take from hold to payment, who returns, and which length of a hold sells more."""

    event_id: str
    holds: int
    fans: int
    to_payment: HoldTimeDistribution
    to_confirmed: HoldTimeDistribution
    returning: ReturningHolders
    suggestion: HoldTtlSuggestion
    arms: list[VariantConversion]
    b_minus_a: VariantDifference | None


class StockInvariant(BaseModel):
    """One invariant, whether it holds, and what violates it."""

    invariant: str
    holds: bool
    detail: str


class StockInvariants(BaseModel):
    """The invariants of an event's stock, and how many reservations were ever sold."""

    confirmed: int
    invariants: list[StockInvariant]


class ReconcilePass(BaseModel):
    """One comparison: differences seen, those confirmed by an earlier pass (`old`), and those corrected."""

    differences: int
    old: int
    corrected: int


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


class SectionFlow(BaseModel):
    """A section's places: `on_sale` is its capacity without blocked and allotted places."""

    section_id: str
    name: str
    on_sale: int
    available: int
    held: int
    sold: int


class HoldsFlow(BaseModel):
    """Fans who ever held tickets, their holds by status, the age of the oldest that is open or being paid, and the
    places of each section. All holds that began before the oldest open one have ended: how many there are, and how
    many of them were given back.
    """

    event_id: str
    at: datetime
    fans_held: int
    holds: int
    by_status: dict[ReservationState, int]
    oldest_hold_s: float | None
    oldest_payment_s: float | None
    oldest_open_s: float | None
    earlier: int
    earlier_given_back: int
    sections: list[SectionFlow]
    first_at: datetime | None
    last_at: datetime | None


class HoldsStep(BaseModel):
    """One step of time, by its number: holds begun, sold, expired and cancelled in it."""

    step: int
    held: int
    confirmed: int
    expired: int
    cancelled: int


class HoldsHistory(BaseModel):
    """The steps in which anything happened, and reservations by the reason of their release over the whole sale."""

    steps: list[HoldsStep]
    released: dict[str, int]
