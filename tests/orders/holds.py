"""A double of inventory that keeps its holds in memory; `tests/contracts` compares it with the service."""

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


def _step_done(outcome: Any, reservation: Reservation) -> StepDone:
    return StepDone(
        outcome=outcome, order_reference=reservation.order_reference, status=reservation.status,
        reserved_until_ms=reservation.reserved_until_ms,
    )  # fmt: skip


def _refused(reservation: Reservation | None, has_other_owner: bool) -> StepDone:
    if reservation is None:
        return StepDone(outcome="unknown")
    return _step_done("not-owner" if has_other_owner else "ended", reservation)


@dataclass
class Holds:
    """The holds of one test. Reservations in `taken` cannot be reacquired: somebody else has their stock. `calls` are
    the steps that orders requested: path, reservation, order. `on_call` runs before each.
    """

    reservations: dict[str, Reservation] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    customer_max: int = 100
    customers: dict[str, str] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    returned: dict[str, ReturnTickets] = field(default_factory=dict)
    consents: dict[str, str] = field(default_factory=dict)  # addresses not yet read by orders
    pay_ttl_ms: int = 60_000
    on_call: Callable[[str], Any] | None = None

    @property
    def called_paths(self) -> list[str]:
        return [path for path, *_ in self.calls]

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
        held = self._find(step)
        if held is None:
            return StepDone(outcome="unknown")
        if held.status in ("paying", "confirmed") and held.order_reference == step.order_reference:
            return _step_done("done", held)
        if held.status == "paying":
            return _step_done("payment-in-progress", held)
        if held.status != "pending_payment" or now_ms() > held.reserved_until_ms + held.grace_s * 1000:
            return _step_done("ended", held)
        if step.released_tickets is not None and step.released_tickets != held.released_tickets:
            return _step_done("changed", held)
        if step.customer_key:
            theirs = (id_ for id_, key in self.customers.items() if key == step.customer_key)
            in_payment = [self.reservations[id_].status for id_ in theirs].count("paying")
            if in_payment >= self.customer_max:
                over = CustomerLimit(limit="open_orders_per_customer", allowed=self.customer_max, used=in_payment)
                return _step_done("limit-exceeded", held).model_copy(update={"over": over})
            self.customers[step.reservation_id] = step.customer_key
        until = held.reserved_until_ms
        if step.reservation_id not in self.extended and self.pay_ttl_ms:
            until = max(until, now_ms() + self.pay_ttl_ms)
            self.extended.add(step.reservation_id)
        return self._set_status(step, "paying", reserved_until_ms=until, order_reference=step.order_reference)

    def extend(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is None or not mine or held.status != "paying":
            return _refused(held, held is not None and held.status in LIVE)
        if now_ms() > held.reserved_until_ms + held.grace_s * 1000:
            return _step_done("ended", held)
        return self._set_status(step, "paying", reserved_until_ms=now_ms() + self.pay_ttl_ms)

    def end(self, step: PaymentStep) -> StepDone:
        return self._step(step, LIVE, "pending_payment")

    def confirm(self, step: PaymentStep) -> StepDone:
        return self._step(step, ("paying", "confirmed"), "confirmed")

    def returns(self, step: PaymentStep) -> StepDone:
        return self._step(step, ("confirmed", "returned"), "returned")

    def _step(self, step: PaymentStep, allowed: tuple[str, ...], to: str) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in allowed:
            return self._set_status(step, to)
        return _refused(held, held is not None and held.status in {*LIVE, *allowed})

    def release(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is not None and mine and held.status in LIVE:
            late = now_ms() > held.reserved_until_ms + held.grace_s * 1000
            return self._set_status(step, "expired" if late else "cancelled")
        if held is not None and mine and held.status in ("expired", "cancelled"):
            return _step_done("done", held)
        return _refused(held, held is not None and held.status in LIVE)

    def reacquire(self, step: PaymentStep) -> StepDone:
        held, mine = self._held(step)
        if held is None or held.status == "confirmed":
            return _step_done("done", held) if held is not None and mine else _refused(held, has_other_owner=True)
        if held.status == "paying" and not mine:
            return _step_done("payment-in-progress", held)
        if held.status == "returned":
            return _step_done("ended", held)
        if step.reservation_id in self.taken and held.status not in LIVE:
            return _step_done("taken", held)
        return self._set_status(step, "confirmed", order_reference=step.order_reference)

    def _find(self, step: PaymentStep | ReturnTickets) -> Reservation | None:
        """The reservation, if the step names its event, the shard key."""
        held = self.reservations.get(step.reservation_id)
        return held if held is not None and held.event_id == step.event_id else None

    def _held(self, step: PaymentStep) -> tuple[Reservation | None, bool]:
        """The reservation, and whether this order owns it."""
        held = self._find(step)
        return held, held is not None and held.order_reference == step.order_reference

    def _set_status(self, step: PaymentStep, status: str, **fields: Any) -> StepDone:
        return _step_done("done", self.change(step.reservation_id, status=status, **fields))

    def return_tickets(self, request: ReturnTickets) -> StepDone:
        held = self._find(request)
        if held is None:
            return StepDone(outcome="unknown")
        if held.order_reference != request.order_reference:
            return StepDone(outcome="not-owner")
        if request.return_id in self.returned:
            assert self.returned[request.return_id] == request
            return StepDone(outcome="done")
        wanted = len(request.seats) + sum(ga.quantity for ga in request.ga)
        left = sum(line.quantity for line in held.lines) - len(self.returned_tickets(request.reservation_id)) - wanted
        if held.status != "confirmed" or left < 0:
            return StepDone(outcome="ended")
        self.returned[request.return_id] = request
        self.change(request.reservation_id, status="confirmed" if left else "returned")
        return StepDone(outcome="done")

    def returned_tickets(self, reservation_id: str) -> list[str]:
        """Every ticket returned, by seat or by section."""
        requests = [request for request in self.returned.values() if request.reservation_id == reservation_id]
        sections = [ga.section_id for request in requests for ga in request.ga for _ in range(ga.quantity)]
        return sorted([seat for request in requests for seat in request.seats] + sections)


@dataclass
class InventoryDouble:
    """The double as a service: it keeps running, and each test replaces its holds."""

    holds: Holds = field(default_factory=Holds)

    def app(self) -> FastAPI:
        router = APIRouter(prefix="/internal")

        @router.post("/reservations/read")
        async def read(request: ReadReservations) -> ReservationsAnswer:
            return ReservationsAnswer(reservations=[self.holds.reservations.get(r) for r in request.reservation_ids])

        @router.post("/reminder-consents/poll")
        async def poll_consents(request: PollConsents) -> ReminderConsents:
            for reservation_id in request.acknowledged:
                self.holds.consents.pop(reservation_id, None)
            given = self.holds.consents.items()
            return ReminderConsents(
                consents=[ReminderConsent(reservation=self.holds.reservations[r], email=e) for r, e in given]
            )

        @router.post("/reservations/ticket-returns")
        async def return_tickets(request: ReturnTickets) -> StepDone:
            return self.holds.return_tickets(request)

        def add_endpoint(path: str, method: str) -> None:
            @router.post(f"/reservations/{path}")
            async def steps(request: PaymentSteps) -> StepsAnswer:
                holds = self.holds
                if holds.on_call is not None:
                    await holds.on_call(path)
                holds.calls += [(path, s.reservation_id, s.order_reference) for s in request.steps]
                return StepsAnswer(steps=[getattr(holds, method)(step) for step in request.steps])

        for path in ("begin-payment", "extend-payment", "end-payment", "confirm", "release", "reacquire", "returns"):
            add_endpoint(path, path.partition("-")[0])
        app = FastAPI()
        app.include_router(router)
        return app
