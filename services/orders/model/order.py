"""An order with all that hangs on it, as one row of `orders.order` and its money have it. No I/O and no clock."""

from dataclasses import dataclass
from typing import Any, Literal

from services.orders.model.states import SALE_STATUSES

MISMATCH = "mismatch"  # reason of an attempt that was authorised for another amount or currency
AdjustmentKind = Literal["discount", "fee", "tax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to charge the order's total; `errors` counts answers of the provider that were no outcome. Without
    `capture` it only authorises; the money is captured once the order is confirmed. It is born `unknown`: who finds it
    so calls the provider under its key, which makes it the same charge. `key_hash` and `fingerprint` (hexadecimal) are
    those of the request that asked for it; the first attempt has those of the order.
    """

    n: int
    provider: str
    method: str
    amount_minor: int
    currency: str
    provider_key: str
    status: str
    token: str | None = None
    return_url: str | None = None
    provider_ref: str | None = None
    checkout_url: str | None = None
    reason: str | None = None
    errors: int = 0
    capture: bool = True
    created_at_ms: int = 0
    changed_at_ms: int = 0
    key_hash: str | None = None
    fingerprint: str | None = None


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
    tickets: list[dict[str, Any]]
    command_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketReturn:
    """Tickets that were refunded and not yet returned to inventory: `{line_no, section_id, seat_id, quantity}` each."""

    id: int
    reason: str
    tickets: list[dict[str, Any]]
    return_to_sale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTicket:
    """One admission of a line. It is issued once the order is fulfilled; its id follows from its place in the order."""

    id: str
    void_at_ms: int | None = None
    void_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One seat, or tickets without a seat; `returned` of them were refunded or are being refunded. `paid_minor` is
    their price with their part of every discount, fee and added tax; all lines sum to the order's total. A line that
    is only quoted has no `tickets` yet.
    """

    section_id: str
    seat_id: str | None = None
    quantity: int
    unit_price_minor: int
    paid_minor: int
    line_no: int = 1
    returned: int = 0
    tickets: tuple[LineTicket, ...] = ()

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
class JournalEntry:
    """An entry of the journal: what was to be done for the order, by whom, and what became of it. `tries` are counted
    as they end. It is `processing`, then `completed` or `failed`, with the time at which it ended.
    """

    type: str
    by: str
    status: str
    tries: int
    at_ms: int
    done_at_ms: int | None = None
    error: str | None = None
    payload: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        return self.done_at_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order with all its parts, as one statement read it. `wakes` counts what was asked of it since it is open; what
    is written about it has seen all of that.
    """

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
    now_ms: int
    wakes: int = 0
    sync_requested: bool = False
    errors: int = 0
    sync_due: bool = False
    review_decision: str | None = None
    unmailed: bool = False
    address_changes: int = 0
    dispute: str | None = None
    traceparent: str | None = None
    lines: tuple[OrderLine, ...] = ()
    extras: tuple[Adjustment, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    charges: tuple[Charge, ...] = ()
    refunds: tuple[Refund, ...] = ()
    returns: tuple[TicketReturn, ...] = ()
    journal: tuple[JournalEntry, ...] = ()

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
