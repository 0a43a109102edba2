"""Decides the next step of an order from its rows alone: no I/O and no clock, so the same rows give the same step.

Each step may run again after a crash anywhere in it; there is nothing to resume, only rows to read.
"""

from dataclasses import dataclass
from typing import Any, Literal

from services.orders.order.states import LIVE_STATUSES, SALE_STATUSES, SOLD_STATUSES

CAPTURES_MAX = 3  # failed captures before the authorisation and the sale are given up
DISPUTED, DISPUTE_LOST, DISPUTE_WON = "disputed", "dispute-lost", "dispute-won"  # why an order is in review
DISPUTE_REASONS = (DISPUTED, DISPUTE_LOST)
REFUNDED_OUTSIDE = "refunded-outside"  # in part, at the provider itself: a person decides about the tickets
MISMATCH = "mismatch"  # reason of an attempt that was authorised for another amount or currency

Step = Literal[
    "send_refund", "return_tickets", "confirm", "charge", "sync_provider", "cancel_charge", "abandon_attempt", "cancel",
    "expire", "release_hold", "mark_paid_late", "reacquire_stock", "request_refund", "mark_refunded", "issue_tickets",
    "review", "keep_sold", "capture", "revoke_unpaid_sale", "wait",
]  # fmt: skip
AdjustmentKind = Literal["discount", "fee", "tax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to charge the order; `errors` counts answers of the provider that were no outcome. Without `capture`
    it only authorises; the money is captured once the order is confirmed.
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
    """Money that was charged. `refunded_minor` is refunded or requested to be; `refunds` counts all refunds requested,
    also refused ones, and those made outside. `disputed_minor` is what the provider has withdrawn for a dispute, by
    `dispute_entries` entries of our ledger.
    """

    provider: str
    charge_ref: str
    amount_minor: int
    currency: str
    occurred_at_ms: int
    refunded_minor: int
    refunds: int = 0
    disputed_minor: int = 0
    dispute_entries: int = 0

    @property
    def left_minor(self) -> int:
        """The part that we still have and that is not being refunded."""
        return max(0, self.amount_minor - self.refunded_minor - self.disputed_minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """A refund that was requested and is not done yet."""

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
    """Tickets that were refunded and not yet returned to inventory: `{line_no, section_id, seat_id, quantity}` each."""

    id: int
    reason: str
    tickets: list[dict[str, Any]]
    return_to_sale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One seat, or tickets without a seat; `returned` of them were refunded or are being refunded. `paid_minor` is
    their price with their part of every discount, fee and added tax; all lines sum to the order's total.
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
    """A discount (below zero), fee or tax. With `included` it is part of the ticket prices and not added."""

    kind: AdjustmentKind
    name: str
    percent: str | None
    amount_minor: int
    included: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order with all its parts, as one statement read it."""

    reference: str
    status: str
    event_id: str
    reservation_id: str
    owner_id: str
    lane: int
    join_seq: int
    total_minor: int
    currency: str
    customer_name: str
    customer_email: str
    language: str
    created_at_ms: int
    expires_at_ms: int
    grace_s: int
    confirmed_at_ms: int | None
    fulfilled_at_ms: int | None = None
    ended_at_ms: int | None
    end_reason: str | None
    cancel_requested: bool
    extended: bool
    released: bool
    charge_ref: str | None
    version: int
    wake_count: int
    sync_requested: bool
    errors: int
    sync_due: bool
    now_ms: int
    review_decision: str | None = None
    unmailed: bool = False
    dispute: str | None = None
    traceparent: str | None = None
    lines: tuple[OrderLine, ...] = ()
    extras: tuple[Adjustment, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    charges: tuple[Charge, ...] = ()
    refunds: tuple[Refund, ...] = ()
    returns: tuple[TicketReturn, ...] = ()

    @property
    def holder(self) -> str:
        return self.owner_id.partition(":")[2]

    @property
    def attempt(self) -> Attempt | None:
        """The latest attempt: the only one that may be live."""
        return self.attempts[-1] if self.attempts else None

    @property
    def providers(self) -> tuple[str, ...]:
        """Every provider that has an attempt of this order."""
        return tuple(dict.fromkeys(attempt.provider for attempt in self.attempts))

    @property
    def authorised(self) -> Attempt | None:
        """The attempt whose money is authorised and not yet captured."""
        attempt = self.attempt
        return attempt if attempt is not None and attempt.status == "authorised" else None

    @property
    def is_paid(self) -> bool:
        """The money of the sale was captured, or the order is free."""
        return not self.total_minor or any(charge.charge_ref == self.charge_ref for charge in self.charges)

    @property
    def charged_minor(self) -> int:
        """All that was ever charged for this order, including a second charge."""
        return sum(charge.amount_minor for charge in self.charges)

    @property
    def refunding_minor(self) -> int:
        """Refunds requested and not done yet."""
        return sum(refund.amount_minor for refund in self.refunds)

    @property
    def refunded_minor(self) -> int:
        """All refunds done, whatever the order's status was: the sum of the provider's own refunds."""
        return sum(charge.refunded_minor for charge in self.charges) - self.refunding_minor

    @property
    def is_open(self) -> bool:
        """Neither sold nor ended."""
        return self.status in ("pending", "review")

    @property
    def is_late(self) -> bool:
        return self.now_ms >= self.expires_at_ms

    @property
    def sale_charge(self) -> Charge | None:
        """The charge that pays for the sale."""
        return next((charge for charge in self.charges if charge.charge_ref == self.charge_ref), None)

    @property
    def disputed_minor(self) -> int:
        """What the provider has withdrawn for disputes and not reinstated."""
        return sum(charge.disputed_minor for charge in self.charges)

    @property
    def has_tickets(self) -> bool:
        """Whether any of its tickets is neither refunded nor being refunded."""
        return any(line.remaining for line in self.lines)

    @property
    def was_sold(self) -> bool:
        """Whether its tickets were ever sold. If not, all its money is refunded."""
        return self.confirmed_at_ms is not None

    @property
    def unmatched_charges(self) -> tuple[Charge, ...]:
        """Charges that pay for no sale and are not fully refunded."""
        return tuple(
            charge
            for charge in self.charges
            if charge.left_minor and not (self.status in SALE_STATUSES and charge.charge_ref == self.charge_ref)
        )

    def matching_charge(self) -> Charge | None:
        """The first charge of exactly the order's total of which nothing was refunded."""
        price = self.total_minor, self.currency
        return next((c for c in self.charges if not c.refunded_minor and (c.amount_minor, c.currency) == price), None)


def next_step(order: Order, *, review_after_s: float) -> Step:
    """What to do now. `wait`: nothing until the order is woken or due."""
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
        return "cancel_charge" if order.cancel_requested else "confirm"
    if attempt.status not in LIVE_STATUSES:
        if order.cancel_requested or attempt.reason == "provider-error":
            return "cancel"
        return "expire" if order.is_late else ("sync_provider" if order.sync_requested else "wait")
    if not (order.cancel_requested or order.is_late):
        return "charge" if attempt.status in ("created", "unknown") else ("sync_provider" if order.sync_due else "wait")
    if attempt.status == "created":
        return "abandon_attempt"
    was_tried = order.errors > 0 or not order.sync_due  # else no worker came by since the deadline
    if order.now_ms > order.expires_at_ms + review_after_s * 1000 and was_tried:
        return "review"
    return "sync_provider" if attempt.status == "unknown" else "cancel_charge"


def _review(order: Order) -> Step:
    """Waits for an operator's decision. Only an unknown outcome that became known moves the order by itself, and a
    dispute that was won before anybody decided.
    """
    if order.review_decision:
        return _after_decision(order)
    if order.end_reason in DISPUTE_REASONS and order.dispute == "won":
        return "keep_sold"
    if order.end_reason == "unknown" and order.charges:
        return "confirm" if order.matching_charge() else "wait"
    if order.end_reason == "unknown" and order.authorised:
        return "wait" if order.authorised.reason == MISMATCH else "confirm"
    if order.end_reason == "unknown" and order.attempt and order.attempt.status not in LIVE_STATUSES:
        return "expire"
    return "sync_provider" if order.sync_due or order.sync_requested else "wait"


def _after_decision(order: Order) -> Step:
    """A sale is kept, or its refund was requested with the decision. Any other order is sold, refunded or expired."""
    if order.review_decision == "confirm":
        return "keep_sold" if order.was_sold else "reacquire_stock"
    if order.review_decision == "refund":
        return "request_refund" if order.unmatched_charges else "mark_refunded"
    return "expire"


def _ended(order: Order) -> Step:
    """The hold is released first; a late payment may reacquire its seats like anybody else. An authorisation is
    captured for the sale it pays for, and cancelled otherwise; a sale whose money cannot be captured is revoked.
    """
    if (attempt := order.authorised) is not None:
        tried = order.status != "confirmed" or attempt.errors >= CAPTURES_MAX
        return "cancel_charge" if tried or attempt.provider_ref != order.charge_ref else "capture"
    if order.status == "confirmed" and not order.is_paid and order.attempt and not order.attempt.capture:
        return "revoke_unpaid_sale"
    never_sold = order.status in ("cancelled", "expired") or (order.status == "refunded" and not order.was_sold)
    if never_sold and not order.released:
        return "release_hold"
    if order.unmatched_charges:
        return _unmatched(order)
    if order.status == "late_paid":
        return "mark_refunded"
    if order.status in SOLD_STATUSES and order.is_paid and order.fulfilled_at_ms is None:
        return "issue_tickets"
    return "sync_provider" if order.attempts and (order.sync_requested or order.sync_due) else "wait"


def _unmatched(order: Order) -> Step:
    """A second charge is refunded alone. A late payment is recorded, then judged by when the provider took it."""
    if order.status in SALE_STATUSES:
        return "request_refund"
    if order.status != "late_paid":
        return "mark_paid_late"
    charge = order.matching_charge()
    may_sell = order.end_reason not in ("fan", "operator", "taken", "capture")
    in_time = charge is not None and charge.occurred_at_ms <= order.expires_at_ms + order.grace_s * 1000
    return "reacquire_stock" if may_sell and in_time else "request_refund"
