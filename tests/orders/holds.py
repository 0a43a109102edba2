"""A double of inventory: its contract, from memory."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, FastAPI

from shared.contracts.inventory import (
    CustomerLimit,
    PaymentStep,
    PaymentSteps,
    PollConsents,
    ReadReservations,
    ReminderConsent,
    ReminderConsents,
    Reservation,
    ReservationsAnswer,
    ReservedItem,
    ReturnTickets,
    StepDone,
    StepsAnswer,
)
from shared.runtime.clock import now_ms

EVENT = "flash"
LIVE = ("pending_payment", "paying")


def _answer(word: Any, held: Reservation) -> StepDone:
    return StepDone(
        outcome=word, order_reference=held.order_reference, status=held.status, reserved_until_ms=held.reserved_until_ms
    )  # fmt: skip


def _refused(held: Reservation | None, is_somebodys: bool) -> StepDone:
    if held is None:
        return StepDone(outcome="unknown")
    return _answer("not-owner" if is_somebodys else "ended", held)


@dataclass
class Holds:
    """The holds of one test. The stock of those in `taken` was lost for good."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    customer_max: int = 100
    customers: dict[str, str] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    returned: dict[str, ReturnTickets] = field(default_factory=dict)
    consents: dict[str, str] = field(default_factory=dict)  # addresses not yet read by orders
    pay_ttl_ms: int = 60_000
    gate: Callable[[str], Any] | None = None

    def hold(self, holder: str = "fan", *, total_minor: int = 6800, until_ms: int = 60_000, **fields: Any) -> str:
        reservation_id = fields.pop("reservation_id", None) or uuid.uuid4().hex
        lines = fields.pop("lines", None) or [ReservedItem(section_id="GA1", quantity=1, unit_price_minor=total_minor)]
        self.reservations[reservation_id] = Reservation(
            event_id=EVENT, reservation_id=reservation_id, holder=holder, status="pending_payment", join_seq=7,
            total_minor=total_minor, currency="EUR", reserved_until_ms=now_ms() + until_ms, lines=lines, **fields,
        )  # fmt: skip
        return reservation_id

    def change(self, reservation_id: str, **fields: Any) -> Reservation:
        changed = self.reservations[reservation_id].model_copy(update=fields)
        self.reservations[reservation_id] = changed
        return changed

    def begin(self, step: PaymentStep) -> StepDone:
        held = self.reservations.get(step.reservation_id)
        if held is None:
            return StepDone(outcome="unknown")
        if held.status in ("paying", "confirmed") and held.order_reference == step.order_reference:
            return _answer("done", held)
        if held.status == "paying":
            return _answer("payment-in-progress", held)
        if held.status != "pending_payment" or now_ms() > held.reserved_until_ms + held.grace_s * 1000:
            return _answer("ended", held)
        if step.released_tickets is not None and step.released_tickets != held.released_tickets:
            return _answer("changed", held)
        if step.customer_key:
            theirs = (id_ for id_, key in self.customers.items() if key == step.customer_key)
            open_now = [self.reservations[id_].status for id_ in theirs].count("paying")
            if open_now >= self.customer_max:
                over = CustomerLimit(limit="open_orders_per_customer", allowed=self.customer_max, used=open_now)
                return _answer("limit-exceeded", held).model_copy(update={"over": over})
            self.customers[step.reservation_id] = step.customer_key
        until = held.reserved_until_ms
        if step.reservation_id not in self.extended and self.pay_ttl_ms:
            until = max(until, now_ms() + self.pay_ttl_ms)
            self.extended.add(step.reservation_id)
        return self._moved(step, "paying", reserved_until_ms=until, order_reference=step.order_reference)

    def end(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in ("pending_payment", "paying"):
            return self._moved(step, "pending_payment")
        return _refused(held, held is not None and held.status in LIVE)

    def confirm(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in ("paying", "confirmed"):
            return self._moved(step, "confirmed")
        return _refused(held, held is not None and held.status in (*LIVE, "confirmed"))

    def release(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in LIVE:
            late = now_ms() > held.reserved_until_ms + held.grace_s * 1000
            return self._moved(step, "expired" if late else "cancelled")
        if held is not None and mine and held.status in ("expired", "cancelled"):
            return _answer("done", held)
        return _refused(held, held is not None and held.status in LIVE)

    def reacquire(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is None or held.status == "confirmed":
            return _answer("done", held) if held is not None and mine else _refused(held, is_somebodys=True)
        if held.status == "paying" and not mine:
            return _answer("payment-in-progress", held)
        if held.status == "returned":
            return _answer("ended", held)
        if step.reservation_id in self.taken and held.status not in LIVE:
            return _answer("taken", held)
        return self._moved(step, "confirmed", order_reference=step.order_reference)

    def returns(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in ("confirmed", "returned"):
            return self._moved(step, "returned")
        return _refused(held, held is not None and held.status in (*LIVE, "confirmed", "returned"))

    def _held(self, step: PaymentStep) -> tuple[Reservation | None, bool]:
        """The reservation, and whether this order owns it."""
        held = self.reservations.get(step.reservation_id)
        return held, held is not None and held.order_reference == step.order_reference

    def _moved(self, step: PaymentStep, status: str, **fields: Any) -> StepDone:
        return _answer("done", self.change(step.reservation_id, status=status, **fields))

    def return_tickets(self, asked: ReturnTickets) -> StepDone:
        held = self.reservations.get(asked.reservation_id)
        if held is None:
            return StepDone(outcome="unknown")
        if held.order_reference != asked.order_reference:
            return StepDone(outcome="not-owner")
        if asked.return_id in self.returned:
            assert self.returned[asked.return_id] == asked
            return StepDone(outcome="done")
        asked_for = len(asked.seats) + sum(some.quantity for some in asked.ga)
        left = sum(line.quantity for line in held.lines) - len(self.back(asked.reservation_id)) - asked_for
        if held.status != "confirmed" or left < 0:
            return StepDone(outcome="ended")
        self.returned[asked.return_id] = asked
        self.change(asked.reservation_id, status="confirmed" if left else "returned")
        return StepDone(outcome="done")

    def back(self, reservation_id: str) -> list[str]:
        """Every ticket returned, by seat or by section."""
        asked = [each for each in self.returned.values() if each.reservation_id == reservation_id]
        ga = [some.section_id for each in asked for some in each.ga for _ in range(some.quantity)]
        return sorted([seat for each in asked for seat in each.seats] + ga)


@dataclass
class InventoryDouble:
    """Inventory as a service; it stays open, while each test has holds of its own."""

    holds: Holds = field(default_factory=Holds)

    def app(self) -> FastAPI:
        router = APIRouter(prefix="/internal")

        @router.post("/reservations/read")
        async def read(question: ReadReservations) -> ReservationsAnswer:
            return ReservationsAnswer(reservations=[self.holds.reservations.get(r) for r in question.reservation_ids])

        @router.post("/reminder-consents/poll")
        async def poll_consents(question: PollConsents) -> ReminderConsents:
            for reservation_id in question.acknowledged:
                self.holds.consents.pop(reservation_id, None)
            asked = self.holds.consents.items()
            return ReminderConsents(
                consents=[ReminderConsent(reservation=self.holds.reservations[r], email=e) for r, e in asked]
            )

        @router.post("/reservations/ticket-returns")
        async def return_tickets(question: ReturnTickets) -> StepDone:
            return self.holds.return_tickets(question)

        def verb(path: str, name: str) -> None:
            @router.post(f"/reservations/{path}")
            async def steps(question: PaymentSteps) -> StepsAnswer:
                holds = self.holds
                if holds.gate is not None:
                    await holds.gate(path)
                holds.asked += [(path, s.reservation_id, s.order_reference) for s in question.steps]
                return StepsAnswer(steps=[getattr(holds, name)(step) for step in question.steps])

        for path in ("begin-payment", "end-payment", "confirm", "release", "reacquire", "returns"):
            verb(path, path.partition("-")[0])
        app = FastAPI()
        app.include_router(router)
        return app
