"""Inventory's admin API: requests and responses about events, holds and reconciliation.

Counts are places (seats or GA tickets), money is in minor units, times are RFC 3339 unless a name ends in `_s` or
`_ms`.
"""

from datetime import datetime

from pydantic import BaseModel

from shared.contracts.event_parts.price_types import Trait
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


class TraitCounts(BaseModel):
    """Places that have a trait; those that are neither available nor held nor sold are blocked."""

    capacity: int
    available: int
    held: int
    sold: int


class PlacesByTrait(BaseModel):
    """Places by trait, of each section that has any and of the event. A place with two traits is counted for both."""

    sections: dict[str, dict[Trait, TraitCounts]]
    total: dict[Trait, TraitCounts]


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
