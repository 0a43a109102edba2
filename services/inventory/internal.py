"""Inventory's internal API, for the other services: sessions to end, payment steps, returns, consents and the stock."""

from typing import Any

from fastapi import APIRouter
from starlette.routing import Route

from services.inventory.api.schemas import event_details, event_list, seat_page, section_list
from services.inventory.redis_stock.seat_map import seat_statuses
from services.inventory.reservations.payment import BEGIN, CONFIRM, END, EXTEND, REACQUIRE, RELEASE, Transition
from services.inventory.reservations.repository import pending_consents
from services.inventory.state import State, StateDep
from shared.contracts.catalogue import EventPageFacts, ListedEvents, ListEvents, ReadEventPage, ReadSeats, SeatPage
from shared.contracts.frames import SeatsFrame, StockFrame
from shared.contracts.inventory import (
    EndSessions,
    FindReservation,
    FoundReservation,
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
from shared.web.fast_routes import JsonRoute

router = APIRouter()


@router.post("/sessions/end")
async def end_sessions(question: EndSessions, state: StateDep) -> SessionsAnswer:
    state.catalogue.layout(question.event_id)
    return SessionsAnswer(sessions=await state.sessions.end(question))


@router.post("/passes/min-epoch")
async def set_min_pass_epoch(minimum: MinPassEpoch, state: StateDep) -> MinPassEpoch:
    return await state.sessions.set_min_pass_epoch(minimum)


@router.post("/reminder-consents/poll")
async def poll_consents(poll: PollConsents, state: StateDep) -> ReminderConsents:
    return ReminderConsents(consents=await pending_consents(state.db, acknowledged=poll.acknowledged))


@router.post("/reservations/returns")
async def return_stock(question: ReturnStock, state: StateDep) -> StepsAnswer:
    steps = await state.returns.return_stock(
        question.steps, keep_blocked=question.keep_blocked, reason=question.reason, actor="orders"
    )
    return StepsAnswer(steps=steps)


@router.post("/reservations/ticket-returns")
async def return_tickets(question: ReturnTickets, state: StateDep) -> StepDone:
    return await state.returns.return_tickets(question, actor="orders")


@router.post("/events/page")
async def read_event_page(question: ReadEventPage, state: StateDep) -> EventPageFacts:
    layout = state.catalogue.layout(question.event_id)
    availability = section_list(layout, await state.availability.frame(layout))
    return EventPageFacts(event=event_details(layout), availability=availability)


@router.post("/events/list")
async def list_events(question: ListEvents, state: StateDep) -> ListedEvents:
    await state.catalogue.check()
    return event_list(state.catalogue.layouts(), question.after)


@router.post("/reservations/of-holder")
async def find_reservation(question: FindReservation, state: StateDep) -> FoundReservation:
    row = await state.holds.live_of(question.event_id, question.holder)
    return FoundReservation(reservation=row.to_contract(), extended=row.extended) if row else FoundReservation()


@router.post("/sections/seats")
async def read_section_seats(question: ReadSeats, state: StateDep) -> SeatPage:
    """The caller has checked that its fan is admitted."""
    section = state.catalogue.layout(question.event_id).section(question.section_id, "seated")
    positions = section.positions(page=question.page, page_size=question.page_size)
    statuses = {} if not positions else await seat_statuses(
        state.autocommit_db, state.redis_stock, question.event_id, section.section_id, first=positions[0],
        last=positions[-1], jti="",
    )  # fmt: skip
    return seat_page(section, positions, statuses, page=question.page, page_size=question.page_size)


@router.post("/stock")
async def read_stock(question: ReadStock, state: StateDep) -> StockFrame:
    state.catalogue.layout(question.event_id)
    return await state.availability.frame_from_db(question.event_id)


@router.post("/seats")
async def read_seats(question: ReadStock, state: StateDep) -> SeatsFrame:
    return await state.seat_states.frame(state.catalogue.layout(question.event_id))


async def _read_reservations(app_state: Any, question: ReadReservations) -> ReservationsAnswer:
    state: State = app_state.deps
    event_ids = question.event_ids or [None] * len(question.reservation_ids)
    found = await state.holds.read_many(list(zip(event_ids, question.reservation_ids, strict=True)))
    return ReservationsAnswer(reservations=found)


def _step(path: str, transition: Transition) -> Route:
    async def run(app_state: Any, question: PaymentSteps) -> StepsAnswer:
        state: State = app_state.deps
        answer = StepsAnswer(steps=await state.payments.take(transition, question.steps))
        for step, done in zip(question.steps, answer.steps, strict=True):
            if done.outcome == "done" and transition is RELEASE:
                state.address_holds.discard(step.reservation_id)
            elif done.outcome == "done" and done.reserved_until_ms is not None:
                state.address_holds.prolong(step.reservation_id, until_ms=done.reserved_until_ms)
        return answer

    return Route(f"/reservations/{path}", JsonRoute(PaymentSteps, run), methods=["POST"])


FAST_ROUTES = [
    Route("/reservations/read", JsonRoute(ReadReservations, _read_reservations), methods=["POST"]),
    _step("begin-payment", BEGIN),
    _step("extend-payment", EXTEND),
    _step("end-payment", END),
    _step("confirm", CONFIRM),
    _step("release", RELEASE),
    _step("reacquire", REACQUIRE),
]
