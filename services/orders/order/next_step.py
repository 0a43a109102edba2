"""What is due for an order, decided from its rows alone: no I/O, no clock of its own, the same answer every time.

Each step may run again after a crash anywhere inside it; that is why there is nothing to resume, only rows to read.
"""

from dataclasses import dataclass
from typing import Any, Literal

from services.orders.order.states import BACKED, LIVE, SALE

CAPTURES_MAX = 3  # after so many failures what was authorised is given up, and the sale with it
MISMATCH = "mismatch"  # the reason of an attempt that was authorised for another amount than asked

Step = Literal[
    "send_refund", "return_tickets", "confirm", "charge", "look", "cancel_charge", "give_up_attempt", "cancel",
    "expire", "release", "own_up", "retake", "refund", "close_refunded", "issue", "review", "stand",
    "capture", "take_back", "wait",
]  # fmt: skip
AdjustmentKind = Literal["discount", "fee", "tax"]


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
    """Money that moved to us, and how much of it went back or is on its way back; `refunds` counts how often that was
    asked for, whatever came of it.
    """

    provider: str
    charge_ref: str
    amount_minor: int
    currency: str
    occurred_at_ms: int
    refunded_minor: int
    refunds: int = 0


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
    command_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketReturn:
    """Tickets whose money went back and which inventory does not have back yet; `tickets` are `{line_no, section_id,
    seat_id, quantity}`.
    """

    id: int
    reason: str
    tickets: list[dict[str, Any]]
    to_sale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One seat, or some tickets without a seat; `returned` of them were given back or are on their way. `paid_minor` is
    what they cost with their part of every discount, fee and added tax: these sum to the order's total.
    """

    section_id: str
    seat_id: str | None
    quantity: int
    unit_price_minor: int
    paid_minor: int
    line_no: int = 1
    returned: int = 0

    @property
    def remaining(self) -> int:
        return self.quantity - self.returned


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What comes on top of the tickets, or off them (below zero). `included` is in their prices and only shown."""

    kind: AdjustmentKind
    name: str
    percent: str | None
    amount_minor: int
    included: bool = False


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
    fulfilled_at_ms: int | None = None
    ended_at_ms: int | None
    end_reason: str | None
    cancel_asked: bool
    released: bool
    charge_ref: str | None
    version: int
    wake_count: int
    sync_requested: bool
    errors: int
    look_due: bool
    now_ms: int
    decided: str | None = None
    lines: tuple[OrderLine, ...] = ()
    extras: tuple[Adjustment, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    charges: tuple[Charge, ...] = ()
    refunds: tuple[Refund, ...] = ()
    returns: tuple[TicketReturn, ...] = ()

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
    def charged_minor(self) -> int:
        """All that the provider ever took for this order, a second charge included."""
        return sum(charge.amount_minor for charge in self.charges)

    @property
    def refunding_minor(self) -> int:
        """What was asked back and is not back yet."""
        return sum(refund.amount_minor for refund in self.refunds)

    @property
    def refunded_minor(self) -> int:
        """What went back of all that, whatever the order was by then: the sum of the provider's own refunds."""
        return sum(charge.refunded_minor for charge in self.charges) - self.refunding_minor

    @property
    def late(self) -> bool:
        return self.now_ms >= self.expires_at_ms

    @property
    def sale_charge(self) -> Charge | None:
        """The charge that pays for the sale."""
        return next((charge for charge in self.charges if charge.charge_ref == self.charge_ref), None)

    @property
    def sold(self) -> bool:
        """Whether its tickets were ever sold to it; money of an order that never was goes back whole."""
        return self.confirmed_at_ms is not None

    @property
    def unmatched_charges(self) -> tuple[Charge, ...]:
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
    """What to do now. `wait` means nothing until the next wake_count or due time."""
    if order.refunds:
        return "send_refund"
    if order.returns:
        return "return_tickets"
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
        return "expire" if order.late else ("look" if order.sync_requested else "wait")
    if not (order.cancel_asked or order.late):
        return "charge" if attempt.status in ("created", "unknown") else ("look" if order.look_due else "wait")
    if attempt.status == "created":
        return "give_up_attempt"
    was_tried = order.errors > 0 or not order.look_due  # else nobody was here since the deadline
    if order.now_ms > order.expires_at_ms + review_after_s * 1000 and was_tried:
        return "review"
    return "look" if attempt.status == "unknown" else "cancel_charge"


def _review(order: Order) -> Step:
    """A person decides; only an outcome that was unknown and is now known moves the order by itself."""
    if order.decided:
        return _decided(order)
    if order.end_reason == "unknown" and order.charges:
        return "confirm" if order.matching_charge() else "wait"
    if order.end_reason == "unknown" and order.authorised:
        return "wait" if order.authorised.reason == MISMATCH else "confirm"
    if order.end_reason == "unknown" and order.attempt and order.attempt.status not in LIVE:
        return "expire"
    return "look" if order.look_due or order.sync_requested else "wait"


def _decided(order: Order) -> Step:
    """What was sold stands again, or its refund was asked for already; what never was is sold, given back or ended."""
    if order.decided == "confirm":
        return "stand" if order.sold else "retake"
    if order.decided == "refund":
        return "refund" if order.unmatched_charges else "close_refunded"
    return "expire"


def _ended(order: Order) -> Step:
    """The hold goes back first; a late success may take it again, as anybody may. What is only authorised is taken for
    the sale it stands for, given up otherwise; a sale whose money cannot be taken is none.
    """
    if (attempt := order.authorised) is not None:
        tried = order.status != "confirmed" or attempt.errors >= CAPTURES_MAX
        return "cancel_charge" if tried or attempt.provider_ref != order.charge_ref else "capture"
    if order.status == "confirmed" and not order.is_paid and order.attempt and not order.attempt.capture:
        return "take_back"
    never_sold = order.status in ("cancelled", "expired") or (order.status == "refunded" and not order.sold)
    if never_sold and not order.released:
        return "release"
    if order.unmatched_charges:
        return _unbacked(order)
    if order.status == "late_paid":
        return "close_refunded"
    if order.status in BACKED and order.is_paid and order.fulfilled_at_ms is None:
        return "issue"
    return "look" if order.attempts and (order.sync_requested or order.look_due) else "wait"


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


def is_sold(order: Order) -> bool:
    """Whether the order stands as sold."""
    return order.status in BACKED
