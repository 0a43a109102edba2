"""What inventory answers its neighbours: the end of sessions, and payment's steps on a hold it owns by name."""

from typing import Literal

from pydantic import BaseModel, Field

from shared.contracts.frames import StockFrame
from shared.rpc.client import ServiceClient

BATCH_MAX = 256

ReservationState = Literal["pending_payment", "paying", "confirmed", "returned", "expired", "cancelled"]


class SessionRef(BaseModel):
    """A session that is due to end: the pass it was given and when that pass ends."""

    jti: str = Field(max_length=128)
    holder: str = Field(max_length=64)
    expires_at_ms: int


class EndSessions(BaseModel):
    """Revoke these passes, unless their holder has a live reservation. `leaving`: the fan goes, so a hold that is not
    being paid is released first.
    """

    event_id: str
    leaving: bool = False
    sessions: list[SessionRef] = Field(min_length=1, max_length=BATCH_MAX)


class SessionEnd(BaseModel):
    """`gone`: the pass no longer works. `until`: a live reservation stands until then."""

    word: Literal["gone", "until"]
    until_ms: int | None = None


class SessionsAnswer(BaseModel):
    """One per session, in order."""

    sessions: list[SessionEnd]


class PassFloor(BaseModel):
    """Passes of epochs below this take nothing any more: the room was reset. It only rises. Raises `UnknownEvent`."""

    event_id: str
    epoch: int


class Line(BaseModel):
    """One seat, or some tickets of a GA section, at the price shown when it was reserved (fee included)."""

    section_id: str
    seat_id: str | None = None
    quantity: int = 1
    unit_price_minor: int


class Reservation(BaseModel):
    """A reservation as orders sees it. Times in ms since the epoch."""

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
    given_back: int = 0  # tickets, before a payment began
    lines: list[Line]


class ReadReservations(BaseModel):
    """By id alone: ids are unique over all events."""

    reservation_ids: list[str] = Field(min_length=1, max_length=BATCH_MAX)


class ReservationsAnswer(BaseModel):
    """One per id, in order; null for an unknown one."""

    reservations: list[Reservation | None]


class ConsentsHeard(BaseModel):
    """Whose consent to reminders orders keeps from now on, by reservation."""

    reservation_ids: list[str] = Field(default_factory=list, max_length=BATCH_MAX)


class Consent(BaseModel):
    """Somebody wants mail about their hold."""

    reservation: Reservation
    email: str


class Consents(BaseModel):
    """Some that orders has not heard of yet."""

    consents: list[Consent]


class PaymentStep(BaseModel):
    """One step of payment on one hold, under the order that owns it. A payment begins for the tickets that orders has
    seen: with as many given back as then.
    """

    reservation_id: str
    order_reference: str
    customer_key: str | None = None
    given_back: int | None = None


class PaymentSteps(BaseModel):
    """A batch of one and the same step."""

    steps: list[PaymentStep] = Field(min_length=1, max_length=BATCH_MAX)


class TakeBack(BaseModel):
    """What these orders bought is given back. `keep_blocked`: its places do not go on sale again by themselves."""

    steps: list[PaymentStep] = Field(min_length=1, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)
    keep_blocked: bool = False


class SomeGa(BaseModel):
    """So many tickets of a GA section."""

    section_id: str
    quantity: int = Field(ge=1)


class TicketsBack(BaseModel):
    """These tickets of what an order bought are given back, all of them or none; once, however often it is asked for
    under this `return_id`. `keep_blocked`: their places do not go on sale again by themselves.
    """

    return_id: str = Field(max_length=100)
    reservation_id: str
    order_reference: str
    seats: list[str] = Field(default_factory=list, max_length=BATCH_MAX)
    ga: list[SomeGa] = Field(default_factory=list, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)
    keep_blocked: bool = False


class CustomerLimit(BaseModel):
    """A limit of one customer that an order would pass: how many it allows, and how many are used already."""

    limit: Literal["tickets_per_customer", "open_orders_per_customer", "tour_tickets_per_customer"]
    allowed: int
    used: int


class StepDone(BaseModel):
    """`done`, also when it was done before. `payment-in-progress`: another order owns it (its reference is told).
    `ended`: the hold is over, or some of these tickets are not its own any more. `taken`: its stock went to somebody
    else (retake only). `limit-exceeded`: too many for one customer, by `over`. `changed`: part of it was given back
    meanwhile (begin only). `not-owner`: this order does not own the hold. `status` and `reserved_until_ms` are the
    hold's as it is now.
    """

    word: Literal["done", "payment-in-progress", "ended", "taken", "limit-exceeded", "changed", "not-owner", "unknown"]
    order_reference: str | None = None
    status: ReservationState | None = None
    reserved_until_ms: int | None = None
    over: CustomerLimit | None = None


class StepsAnswer(BaseModel):
    """One per step, in order."""

    steps: list[StepDone]


class StockQuestion(BaseModel):
    """One event's stock, from the ledger itself. Raises `UnknownEvent`."""

    event_id: str


class InventoryClient:
    """Inventory, asked over the wire."""

    def __init__(self, neighbour: ServiceClient) -> None:
        self._ask = neighbour.ask

    async def end_sessions(self, question: EndSessions) -> SessionsAnswer:
        return await self._ask("/sessions/end", question, SessionsAnswer, deadline_s=5.0)

    async def raise_pass_floor(self, floor: PassFloor) -> PassFloor:
        return await self._ask("/passes/floor", floor, PassFloor)

    async def read(self, reservation_ids: list[str]) -> ReservationsAnswer:
        return await self._ask(
            "/reservations/read", ReadReservations(reservation_ids=reservation_ids), ReservationsAnswer
        )

    async def consents(self, heard: list[str]) -> Consents:
        """Those that have not been `heard`; asked again, the same ones."""
        return await self._ask("/reservations/consents", ConsentsHeard(reservation_ids=heard), Consents)

    async def begin_payment(self, steps: PaymentSteps) -> StepsAnswer:
        return await self._ask("/reservations/begin-payment", steps, StepsAnswer, deadline_s=5.0)

    async def end_payment(self, steps: PaymentSteps) -> StepsAnswer:
        return await self._ask("/reservations/end-payment", steps, StepsAnswer, deadline_s=5.0)

    async def confirm(self, steps: PaymentSteps) -> StepsAnswer:
        return await self._ask("/reservations/confirm", steps, StepsAnswer, deadline_s=5.0)

    async def release(self, steps: PaymentSteps) -> StepsAnswer:
        return await self._ask("/reservations/release", steps, StepsAnswer, deadline_s=5.0)

    async def retake(self, steps: PaymentSteps) -> StepsAnswer:
        return await self._ask("/reservations/retake", steps, StepsAnswer, deadline_s=5.0)

    async def take_back(self, question: TakeBack) -> StepsAnswer:
        return await self._ask("/reservations/take-back", question, StepsAnswer, deadline_s=5.0)

    async def return_tickets(self, question: TicketsBack) -> StepDone:
        return await self._ask("/reservations/return-tickets", question, StepDone, deadline_s=5.0)

    async def stock(self, event_id: str) -> StockFrame:
        return await self._ask("/stock", StockQuestion(event_id=event_id), StockFrame)
