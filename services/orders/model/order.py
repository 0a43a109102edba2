"""An order with all that hangs on it, as one row of `orders.order` and its money have it. No I/O and no clock.

Its status and that of an attempt move as the tables of transitions say. `succeeded` beats every other end of an
attempt, because money that moved is a fact; nothing moves backwards. `authorised` is money promised and not yet
captured; a confirmed order is cancelled only if it cannot be captured. A refund that the provider rejects for good
takes an order to `review` from any status.

The journal has the commands that were run for an order, each with its cause and its result (`checkout_command`).
Entries are added at the end and never removed, so that the place of a command gives its id. It stays bounded: beyond
`ENTRIES_MAX` the last command of the same kind is opened again.

Ids follow from what they name, so that a retry finds the same again: of orders, tickets, charges and customers. An
order remembers its owner as `event_id:holder`, its owner id; a signed-in user is the same holder at every event.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

from shared.contracts.event_parts.price_types import USUAL, PriceType
from shared.rules.addresses import normalize_email
from shared.security.tokens import Keyring, b64

ORDER_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "pending": frozenset({"confirmed", "cancelled", "expired", "review"}),
    "review": frozenset({"confirmed", "expired", "partially_refunded", "refunded"}),
    "confirmed": frozenset({"partially_refunded", "refunded", "cancelled", "review"}),
    "partially_refunded": frozenset({"refunded", "review"}),
    "cancelled": frozenset({"late_paid"}),
    "expired": frozenset({"late_paid"}),
    "late_paid": frozenset({"confirmed", "refunded", "review"}),
    "refunded": frozenset({"review"}),
}
SOLD_STATUSES: Final = frozenset({"confirmed", "partially_refunded"})
SALE_STATUSES: Final = SOLD_STATUSES | {"refunded"}

ATTEMPT_TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "created": frozenset({"unknown", "authorised", "failed", "cancelled", "succeeded"}),
    "unknown": frozenset(
        {"created", "requires_action", "processing", "authorised", "failed", "cancelled", "succeeded"}
    ),
    "requires_action": frozenset({"processing", "authorised", "failed", "cancelled", "succeeded"}),
    "processing": frozenset({"authorised", "failed", "cancelled", "succeeded"}),
    "authorised": frozenset({"failed", "cancelled", "succeeded"}),
    "failed": frozenset({"succeeded"}),
    "cancelled": frozenset({"succeeded"}),
    "succeeded": frozenset(),
}
LIVE_STATUSES: Final = frozenset({"created", "unknown", "requires_action", "processing", "authorised"})


def can_become(status: str, to: str) -> bool:
    """Whether an order may change to this status."""
    return to in ORDER_TRANSITIONS[status]


def attempt_after(status: str, reported: str) -> str:
    """The status of an attempt once the provider reported this one: forward only."""
    return reported if reported in ATTEMPT_TRANSITIONS[status] else status


REFERENCE_CHARS = 12
_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ0123456789"  # 32 characters, without I, L, O and U, which are misread
ENTRIES_MAX = 100
REPLAY_OF = "rerun_of"  # in the payload of a command that repeats another
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
    """Tickets that were refunded and not yet returned to inventory: `{line_no, section_id, seat_id, quantity}` each,
    with the `type_id` of their price type where the event has types.
    """

    id: int
    reason: str
    tickets: list[dict[str, Any]]
    return_to_sale: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTicket:
    """One admission of a line. It is issued once the order is fulfilled; its id follows from its place in the order.
    `name` is who comes with it, if the event asks for a name of each.
    """

    id: str
    void_at_ms: int | None = None
    void_reason: str | None = None
    name: str | None = None


class TypeName(NamedTuple):
    """A price type by its own id, as it is named on the bill, in mail and on tickets; `proof` is shown at the door."""

    type_id: str
    name: str
    proof: str | None = None


class TypeNames(tuple[TypeName, ...]):
    """Those of an event in the order of its file, the usual one first; none of an event without types. Lines have the
    id of their type as it is stored: that of the usual one is empty.
    """

    __slots__ = ()

    @classmethod
    def of(cls, types: Iterable[PriceType]) -> Self:
        """As an event file has them."""
        return cls(TypeName(each.type_id, each.name, each.proof) for each in types)

    @classmethod
    def read(cls, stored: Iterable[Mapping[str, Any]]) -> Self:
        """As `json` stored them."""
        return cls(TypeName(**each) for each in stored)

    def json(self) -> list[dict[str, Any]]:
        return [each._asdict() for each in self]

    def find(self, stored: str) -> TypeName | None:
        """The type with this stored id. One that the event file has no more is called by its id."""
        if not stored:
            return self[0] if self else None
        return next((each for each in self if each.type_id == stored), TypeName(stored, stored))

    def shown(self, stored: str) -> str | None:
        """The own id of the type that is stored so; None for the usual one of an event without types."""
        found = self.find(stored)
        return found.type_id if found else None

    def stored(self, type_id: str) -> str:
        """How the type with this own id is stored."""
        return USUAL if self and self[0].type_id == type_id else type_id

    def has(self, type_id: str) -> bool:
        """Whether the event has a type with this own id."""
        return any(each.type_id == type_id for each in self)


NO_TYPES = TypeNames()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One seat, or tickets of one price type without a seat; `returned` of them were refunded or are being refunded.
    `paid_minor` is their price with their part of every discount, fee and added tax; all lines sum to the order's
    total. A line that is only quoted has no `tickets` yet.
    """

    section_id: str
    seat_id: str | None = None
    quantity: int
    unit_price_minor: int
    paid_minor: int
    type_id: str = USUAL
    line_no: int = 1
    returned: int = 0
    tickets: tuple[LineTicket, ...] = ()

    @property
    def remaining(self) -> int:
        return self.quantity - self.returned


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """A discount (below zero), fee or tax. With `included` it is part of the ticket prices and not added. `base_minor`
    is the amount that a tax is on, where some tax is for some price types only; elsewhere it follows from the total.
    """

    kind: AdjustmentKind
    name: str
    percent: str | None
    amount_minor: int
    included: bool = False
    base_minor: int | None = None


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


class OpenOrder(NamedTuple):
    """An order that is open, as its owner keeps it in mind, and the owner's right to change it. `epoch` rises each time
    that another process takes it over. `was_closed` until now: another process may keep it as it sold it.
    """

    reference: str
    owner: str
    epoch: int
    event_id: str = ""
    join_seq: int = 0
    due_in_s: float = 0.0
    was_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order with all its parts, as one statement read it, and the price types of its event. `wakes` counts what was
    asked of it since it is open; what is written about it has seen all of that.
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
    name_changes: int = 0
    dispute: str | None = None
    traceparent: str | None = None
    lines: tuple[OrderLine, ...] = ()
    extras: tuple[Adjustment, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    charges: tuple[Charge, ...] = ()
    refunds: tuple[Refund, ...] = ()
    returns: tuple[TicketReturn, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    price_types: TypeNames = NO_TYPES

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
    def types_left(self) -> tuple[TypeName, ...]:
        """The price types of the tickets that were not refunded, each once."""
        found = (self.price_types.find(line.type_id) for line in self.lines if line.remaining)
        return tuple(dict.fromkeys(each for each in found if each is not None))

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


def command_id(reference: str, place: int) -> str:
    """The id of the command at this place of an order's journal, counted from 1. It tells both, so that no index is
    needed to find it; the view `checkout_command` computes the same.
    """
    return str(uuid.UUID(reference.encode().hex().ljust(24, "0") + f"{place:08x}"))


def place_of(command_id: str) -> tuple[str, int]:
    """The order and the place that an id tells; of one that is none of ours, an order that does not exist."""
    digits = uuid.UUID(command_id).hex
    return bytes.fromhex(digits[:24]).rstrip(b"\0").decode("ascii", "replace"), int(digits[24:], 16)


def order_reference(keys: Keyring, reservation_id: str, key: str) -> str:
    """The reference of the order of this reservation, which has one holder, with this key: 60 bits that nobody else can
    compute.
    """
    return readable_code(keys.mac("reference", reservation_id, key))


def readable_code(raw: bytes) -> str:
    """The first 60 bits, in characters that people can read to each other."""
    bits = int.from_bytes(raw[:8], "big")
    return "".join(_ALPHABET[(bits >> (5 * place)) & 31] for place in range(REFERENCE_CHARS))


def customer_key(keys: Keyring, email: str) -> str:
    """Identifies a customer to inventory without telling who they are: the same for every spelling of an e-mail
    address. Dots and tags before the @ count, as only the mail provider knows whether they matter. Raises `ValueError`
    for an invalid or disguised address.
    """
    return b64(keys.mac("customer", normalize_email(email)))


def ticket_id(reference: str, line_no: int, n: int) -> str:
    """60 bits derived from the ticket's place in its order; it is no secret."""
    return readable_code(hashlib.sha256(f"ticket:{reference}:{line_no}:{n}".encode()).digest())


def provider_key(reference: str, n: int) -> str:
    """The key of the n-th attempt at its provider."""
    return f"{reference}:{n}"


def owner_id(event_id: str, holder: str) -> str:
    """The owner id of an order: one holder at one event."""
    return f"{event_id}:{holder}"


class Customer(NamedTuple):
    """Who buys: a holder at one event or, without an event, a signed-in user."""

    event_id: str | None
    holder: str

    def owns(self, owner: str) -> bool:
        """Whether an order with this owner id is this customer's."""
        event_id, _, holder = owner.partition(":")
        return holder == self.holder and self.event_id in (None, event_id)
