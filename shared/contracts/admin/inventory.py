"""Inventory's admin API: requests and responses about events, holds and reconciliation.

Counts are places (seats or GA tickets), money is in minor units, times are RFC 3339 unless a name ends in `_s` or
`_ms`.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from shared.contracts.fields import Body, PlainText
from shared.contracts.frames import ReservationState


class ReconcileRequest(Body):
    """Why stock is compared now: written to the audit log."""

    reason: PlainText | None = None


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


class HoldsReleased(BaseModel):
    """How many holds were released."""

    released: int


class ReservationReleased(BaseModel):
    """A reservation after its release; one that had ended before keeps its status."""

    reservation_id: str
    status: ReservationState


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
