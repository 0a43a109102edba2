"""What is due for an order, decided from its rows alone: no I/O, no clock of its own, the same answer every time.

Each step may run again after a crash anywhere inside it; that is why there is nothing to resume, only rows to read.
"""

from dataclasses import dataclass, field
from typing import Literal

from services.orders.states import BACKED, LIVE, SALE

CAPTURES_MAX = 3  # after so many failures what was authorised is given up, and the sale with it
MISMATCH = "mismatch"  # the reason of an attempt that was authorised for another amount than asked

Step = Literal[
    "send_refund", "confirm", "charge", "look", "cancel_charge", "give_up_attempt", "cancel", "expire", "release",
    "own_up", "retake", "refund", "close_refunded", "review", "capture", "take_back", "wait",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try to charge the order; `errors` counts what the provider answered instead of an outcome. Without `capture`
    it authorises first, and takes the money once the order is confirmed.
    """

    n: int
    provider: str
    method: str
    token: str | None
    return_url: str | None
    amount_minor: int
    currency: str
    provider_key: str
    provider_ref: str | None
    status: str
    checkout_url: str | None
    reason: str | None
    errors: int
    capture: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Money that moved to us, and how much of it went back or is on its way back."""

    provider: str
    charge_ref: str
    amount_minor: int
    currency: str
    occurred_at_ms: int
    refunded_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """Money that is to go back and has not yet."""

    id: int
    provider: str
    charge_ref: str
    amount_minor: int
    currency: str
    reason: str
    idem_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One seat, or some tickets without a seat."""

    section_id: str
    seat_id: str | None
    quantity: int
    unit_price_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order and everything that hangs on it, as one statement read it."""

    reference: str
    status: str
    event_id: str
    reservation_id: str
    principal: str
    lane: int
    join_seq: int
    total_minor: int
    currency: str
    customer_name: str
    customer_email: str
    created_at_ms: int
    expires_at_ms: int
    grace_s: int
    confirmed_at_ms: int | None
    ended_at_ms: int | None
    end_reason: str | None
    cancel_asked: bool
    released: bool
    charge_ref: str | None
    version: int
    nudge: int
    hinted: bool
    errors: int
    look_due: bool
    now_ms: int
    lines: tuple[Line, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    charges: tuple[Charge, ...] = ()
    refunds: tuple[Refund, ...] = field(default=())

    @property
    def attempt(self) -> Attempt | None:
        """The latest one: the only one that may be live."""
        return self.attempts[-1] if self.attempts else None

    @property
    def providers(self) -> tuple[str, ...]:
        """Every provider that was asked to charge this order."""
        return tuple(dict.fromkeys(attempt.provider for attempt in self.attempts))

    @property
    def authorised(self) -> Attempt | None:
        """The attempt whose money is promised to us and not yet taken."""
        attempt = self.attempt
        return attempt if attempt is not None and attempt.status == "authorised" else None

    @property
    def is_paid(self) -> bool:
        """The money of the sale was taken, or there is none to take."""
        return not self.total_minor or any(charge.charge_ref == self.charge_ref for charge in self.charges)

    @property
    def late(self) -> bool:
        return self.now_ms >= self.expires_at_ms

    @property
    def unbacked(self) -> tuple[Charge, ...]:
        """Charges that no sale stands behind and that were not given back in full."""
        return tuple(
            charge
            for charge in self.charges
            if charge.refunded_minor < charge.amount_minor
            and not (self.status in SALE and charge.charge_ref == self.charge_ref)
        )

    def matching_charge(self) -> Charge | None:
        """The first charge of exactly what the order costs that has not been given back."""
        price = self.total_minor, self.currency
        return next((c for c in self.charges if not c.refunded_minor and (c.amount_minor, c.currency) == price), None)


def next_step(order: Order, *, review_after_s: float) -> Step:
    """What to do now. `wait` means nothing until the next nudge or due time."""
    if order.refunds:
        return "send_refund"
    if order.status == "pending":
        return _pending(order, review_after_s=review_after_s)
    if order.status == "review":
        return _review(order)
    return _ended(order)


def _pending(order: Order, *, review_after_s: float) -> Step:
    if order.charges:
        return "confirm" if order.matching_charge() else "review"
    attempt = order.attempt
    if attempt is None:
        return "expire" if order.total_minor else "confirm"
    if attempt.status == "authorised":
        if attempt.reason == MISMATCH:
            return "review"
        return "cancel_charge" if order.cancel_asked else "confirm"
    if attempt.status not in LIVE:
        if order.cancel_asked or attempt.reason == "provider-error":
            return "cancel"
        return "expire" if order.late else ("look" if order.hinted else "wait")
    if not (order.cancel_asked or order.late):
        return "charge" if attempt.status in ("created", "unknown") else ("look" if order.look_due else "wait")
    if attempt.status == "created":
        return "give_up_attempt"
    if order.now_ms > order.expires_at_ms + review_after_s * 1000:
        return "review"
    return "look" if attempt.status == "unknown" else "cancel_charge"


def _review(order: Order) -> Step:
    """A person decides; only an outcome that was unknown and is now known moves the order by itself."""
    if order.end_reason == "unknown" and order.charges:
        return "confirm" if order.matching_charge() else "wait"
    if order.end_reason == "unknown" and order.authorised:
        return "wait" if order.authorised.reason == MISMATCH else "confirm"
    if order.end_reason == "unknown" and order.attempt and order.attempt.status not in LIVE:
        return "expire"
    return "look" if order.look_due or order.hinted else "wait"


def _ended(order: Order) -> Step:
    """The hold goes back first; a late success may take it again, as anybody may. What is only authorised is taken for
    the sale it stands for, given up otherwise; a sale whose money cannot be taken is none.
    """
    if (attempt := order.authorised) is not None:
        tried = order.status != "confirmed" or attempt.errors >= CAPTURES_MAX
        return "cancel_charge" if tried or attempt.provider_ref != order.charge_ref else "capture"
    if order.status == "confirmed" and not order.is_paid and order.attempt and not order.attempt.capture:
        return "take_back"
    if order.status in ("cancelled", "expired") and not order.released:
        return "release"
    if order.unbacked:
        return _unbacked(order)
    if order.status == "late_paid":
        return "close_refunded"
    return "look" if order.attempts and (order.hinted or order.look_due) else "wait"


def _unbacked(order: Order) -> Step:
    """A second success is refunded alone. A late one is owned up to, then judged by when the provider took it."""
    if order.status in SALE:
        return "refund"
    if order.status != "late_paid":
        return "own_up"
    charge = order.matching_charge()
    wanted = order.end_reason not in ("fan", "operator", "taken", "capture")
    in_time = charge is not None and charge.occurred_at_ms <= order.expires_at_ms + order.grace_s * 1000
    return "retake" if wanted and in_time else "refund"


def backed(order: Order) -> bool:
    """Whether the order stands as sold."""
    return order.status in BACKED
