"""Inventory's internal API and its client: sessions to end, payment steps on a hold, returns, and the stock.

Every call may be repeated: a step that was done before is answered `done` again.
"""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from shared.contracts.event_parts.price_types import USUAL
from shared.contracts.fields import ServiceMessage
from shared.contracts.frames import ReservationState, StockFrame

if TYPE_CHECKING:
    from shared.rpc import ServiceClient

BATCH_MAX = 256
OWNERS_MAX = 16  # one customer may come with the passes of several events


class SessionRef(ServiceMessage):
    """A session that is due to end: the pass it was given (`jti`) and when that pass expires."""

    jti: str = Field(max_length=128)
    holder: str = Field(max_length=64)
    expires_at_ms: int


class EndSessions(ServiceMessage):
    """Revoke these passes unless their holder has a live reservation. With `leaving` the fan left the line: holds that
    are not being paid are released first.
    """

    event_id: str
    leaving: bool = False
    sessions: list[SessionRef] = Field(min_length=1, max_length=BATCH_MAX)


class SessionEnd(ServiceMessage):
    """`gone`: the pass is revoked. `until`: the holder has a live reservation until `until_ms`, so the pass still
    works.
    """

    outcome: Literal["gone", "until"]
    until_ms: int | None = None


class SessionsAnswer(ServiceMessage):
    """One per session, in order."""

    sessions: list[SessionEnd]


class MinPassEpoch(ServiceMessage):
    """Passes of earlier epochs are invalid because the waiting room was reset. The epoch only rises. Raises
    `UnknownEvent`.
    """

    event_id: str
    epoch: int


class ReservedItem(ServiceMessage):
    """One seat, or GA tickets of one section and price type, at the price shown when it was reserved (fee included).
    `type_id` is empty for the usual price type.
    """

    section_id: str
    seat_id: str | None = None
    quantity: int = 1
    unit_price_minor: int
    type_id: str = USUAL


class Reservation(ServiceMessage):
    """A reservation as orders sees it. Times are milliseconds since 1970."""

    event_id: str
    reservation_id: str
    holder: str
    status: ReservationState
    lane: int = 0
    join_seq: int = 0
    total_minor: int
    currency: str
    reserved_until_ms: int
    grace_s: int = 5
    order_reference: str | None = None
    lines: list[ReservedItem]


class ReadReservations(ServiceMessage):
    """Reservation ids are unique over all events. `event_ids` are their shard keys, one per id; without its own a
    reservation is searched in all events.
    """

    reservation_ids: list[str] = Field(min_length=1, max_length=BATCH_MAX)
    event_ids: list[str | None] = Field(default_factory=list, max_length=BATCH_MAX)

    @model_validator(mode="after")
    def _one_event_per_id(self) -> Self:
        if len(self.event_ids) not in (0, len(self.reservation_ids)):
            raise ValueError("event_ids: one per reservation id, or none")
        return self


class ReservationsAnswer(ServiceMessage):
    """One per id, in order; null for an unknown one."""

    reservations: list[Reservation | None]


class PollConsents(ServiceMessage):
    """Acknowledges consents that the caller has stored, by reservation, and asks for more."""

    acknowledged: list[str] = Field(default_factory=list, max_length=BATCH_MAX)


class ReminderConsent(ServiceMessage):
    """A fan consented to reminder mail about their hold."""

    reservation: Reservation
    email: str


class ReminderConsents(ServiceMessage):
    """Consents that orders has not acknowledged yet."""

    consents: list[ReminderConsent]


class Binding(ServiceMessage):
    """How a hold was bound to its order: the version that it got, and the deadline that it had, null if its time to pay
    was given before.
    """

    version: int
    unpaid_until_ms: int | None


class PaymentStep(ServiceMessage):
    """One payment step on one hold, by the order that owns it. To begin a payment, `owner_ids` are the customers as
    whom the caller came, `event:holder` each, or `:holder` of a user, who is the same at every event: the hold of
    anybody else is `unknown`; null if the caller has checked it. To end a payment that this request began, `binding` is
    what was answered then: the hold is as it was before, if no other request of the order has begun it since.

    `event_id` is the shard key; without it the reservation is searched in all events.
    """

    event_id: str | None = None
    reservation_id: str
    order_reference: str
    customer_key: str | None = None
    owner_ids: list[str] | None = Field(default=None, max_length=OWNERS_MAX)
    binding: Binding | None = None


class PaymentSteps(ServiceMessage):
    """The same payment step for many holds."""

    steps: list[PaymentStep] = Field(min_length=1, max_length=BATCH_MAX)


class ReturnStock(ServiceMessage):
    """Return everything these orders bought. With `keep_blocked` the places are blocked instead of going on sale."""

    steps: list[PaymentStep] = Field(min_length=1, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)
    keep_blocked: bool = False


class GaQuantity(ServiceMessage):
    """A number of tickets of one GA section and price type."""

    section_id: str
    quantity: int = Field(ge=1)
    type_id: str = USUAL


class ReturnTickets(ServiceMessage):
    """Return some tickets of an order: all that are named, or none. `return_id` makes it idempotent. With
    `keep_blocked` the places are blocked instead of going on sale.
    """

    return_id: str = Field(max_length=100)
    event_id: str | None = None  # as in `PaymentStep`
    reservation_id: str
    order_reference: str
    seats: list[str] = Field(default_factory=list, max_length=BATCH_MAX)
    ga: list[GaQuantity] = Field(default_factory=list, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)
    keep_blocked: bool = False


class CustomerLimit(ServiceMessage):
    """A limit per customer that this order would exceed: how many it allows, and how many are used."""

    limit: Literal["tickets_per_customer", "open_orders_per_customer", "tour_tickets_per_customer"]
    allowed: int
    used: int


StepOutcome = Literal["done", "payment-in-progress", "ended", "taken", "limit-exceeded", "not-owner", "unknown"]


class StepDone(ServiceMessage):
    """The result of one step; `status` and `reserved_until_ms` are the hold's after it. The answer to `begin-payment`
    has all of the `reservation`, whatever the outcome, unless it is unknown, and its `binding` if this step made it.

    `done`: also when it was done before. `payment-in-progress`: another order, `order_reference`, is paying for it.
    `ended`: the hold is over, or some of these tickets were returned already. `taken`: another fan has the places
    (reacquire only). `limit-exceeded`: the customer's limit `over` (begin only). `not-owner`: another order owns the
    hold, or another request of it.
    """

    outcome: StepOutcome
    order_reference: str | None = None
    status: ReservationState | None = None
    reserved_until_ms: int | None = None
    over: CustomerLimit | None = None
    reservation: Reservation | None = None
    binding: Binding | None = None


class StepsAnswer(ServiceMessage):
    """One per step, in order."""

    steps: list[StepDone]


class ReadStock(ServiceMessage):
    """One event's stock, or the states of its seats. Raises `UnknownEvent`."""

    event_id: str


class InventoryClient:
    """Typed calls to inventory's internal API; features `ask` what they add to it."""

    def __init__(self, neighbour: "ServiceClient") -> None:
        self.ask = neighbour.call

    async def end_sessions(self, question: EndSessions) -> SessionsAnswer:
        return await self.ask("/sessions/end", question, SessionsAnswer, deadline_s=5.0)

    async def set_min_pass_epoch(self, minimum: MinPassEpoch) -> MinPassEpoch:
        return await self.ask("/passes/min-epoch", minimum, MinPassEpoch)

    async def read(self, question: ReadReservations) -> ReservationsAnswer:
        return await self.ask("/reservations/read", question, ReservationsAnswer)

    async def poll_consents(self, acknowledged: list[str]) -> ReminderConsents:
        """Some consents that were not acknowledged yet; a repeated call answers the same ones."""
        return await self.ask("/reminder-consents/poll", PollConsents(acknowledged=acknowledged), ReminderConsents)

    async def begin_payment(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/begin-payment", steps, StepsAnswer, deadline_s=5.0)

    async def extend_payment(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/extend-payment", steps, StepsAnswer, deadline_s=5.0)

    async def end_payment(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/end-payment", steps, StepsAnswer, deadline_s=5.0)

    async def confirm(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/confirm", steps, StepsAnswer, deadline_s=5.0)

    async def release(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/release", steps, StepsAnswer, deadline_s=5.0)

    async def reacquire(self, steps: PaymentSteps) -> StepsAnswer:
        return await self.ask("/reservations/reacquire", steps, StepsAnswer, deadline_s=5.0)

    async def return_stock(self, question: ReturnStock) -> StepsAnswer:
        return await self.ask("/reservations/returns", question, StepsAnswer, deadline_s=5.0)

    async def return_tickets(self, question: ReturnTickets) -> StepDone:
        return await self.ask("/reservations/ticket-returns", question, StepDone, deadline_s=5.0)

    async def stock(self, event_id: str) -> StockFrame:
        return await self.ask("/stock", ReadStock(event_id=event_id), StockFrame)
