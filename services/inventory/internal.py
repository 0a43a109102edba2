"""Inventory's internal API, for the other services: sessions to end, payment steps, returns, consents and the stock."""

from services.inventory.reservations.payment import BEGIN, CONFIRM, END, EXTEND, REACQUIRE, RELEASE, Transition
from services.inventory.state import State
from services.inventory.store.reservations import pending_consents
from shared.contracts.frames import StockFrame
from shared.contracts.inventory import (
    EndSessions,
    MinPassEpoch,
    PaymentSteps,
    PollConsents,
    ReadReservations,
    ReadStock,
    ReminderConsents,
    ReservationsAnswer,
    ReturnStock,
    ReturnTickets,
    SessionsAnswer,
    StepDone,
    StepsAnswer,
)
from shared.web.internal_api import InternalApi

API = InternalApi()


@API.operation("/sessions/end", EndSessions)
async def end_sessions(state: State, question: EndSessions) -> SessionsAnswer:
    state.catalogue.layout(question.event_id)
    return SessionsAnswer(sessions=await state.sessions.end(question))


@API.operation("/passes/min-epoch", MinPassEpoch)
async def set_min_pass_epoch(state: State, minimum: MinPassEpoch) -> MinPassEpoch:
    return await state.sessions.set_min_pass_epoch(minimum)


@API.operation("/reminder-consents/poll", PollConsents)
async def poll_consents(state: State, poll: PollConsents) -> ReminderConsents:
    return ReminderConsents(consents=await pending_consents(state.db, acknowledged=poll.acknowledged))


@API.operation("/reservations/returns", ReturnStock)
async def return_stock(state: State, question: ReturnStock) -> StepsAnswer:
    steps = await state.returns.return_stock(
        question.steps, keep_blocked=question.keep_blocked, reason=question.reason, actor="orders"
    )
    return StepsAnswer(steps=steps)


@API.operation("/reservations/ticket-returns", ReturnTickets)
async def return_tickets(state: State, question: ReturnTickets) -> StepDone:
    return await state.returns.return_tickets(question, actor="orders")


@API.operation("/stock", ReadStock)
async def read_stock(state: State, question: ReadStock) -> StockFrame:
    state.catalogue.layout(question.event_id)
    return await state.availability.frame_from_db(question.event_id)


@API.operation("/reservations/read", ReadReservations)
async def read_reservations(state: State, question: ReadReservations) -> ReservationsAnswer:
    event_ids = question.event_ids or [None] * len(question.reservation_ids)
    found = await state.holds.read_many(list(zip(event_ids, question.reservation_ids, strict=True)))
    return ReservationsAnswer(reservations=found)


def _add_step(path: str, transition: Transition) -> None:
    @API.operation(f"/reservations/{path}", PaymentSteps)
    async def run(state: State, question: PaymentSteps) -> StepsAnswer:
        answer = StepsAnswer(steps=await state.payments.take(transition, question.steps))
        for step, done in zip(question.steps, answer.steps, strict=True):
            if done.outcome == "done" and transition is RELEASE:
                state.address_holds.discard(step.reservation_id)
            elif done.outcome == "done" and done.reserved_until_ms is not None:
                state.address_holds.prolong(step.reservation_id, until_ms=done.reserved_until_ms)
        return answer


_add_step("begin-payment", BEGIN)
_add_step("extend-payment", EXTEND)
_add_step("end-payment", END)
_add_step("confirm", CONFIRM)
_add_step("release", RELEASE)
_add_step("reacquire", REACQUIRE)
