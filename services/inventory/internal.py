"""What neighbours ask: the end of sessions, payment's steps on holds, reservations and the stock by the ledger."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.routing import Route

from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reminder_consents import pending_consents
from services.inventory.reservations.repository import read
from services.inventory.reservations.sessions import end_sessions, raise_floor
from services.inventory.state import InRoom, State
from shared.contracts.frames import StockFrame
from shared.contracts.inventory import (
    Consents,
    ConsentsHeard,
    EndSessions,
    PassFloor,
    PaymentStep,
    PaymentSteps,
    ReadReservations,
    ReservationsAnswer,
    SessionsAnswer,
    StepDone,
    StepsAnswer,
    StockQuestion,
    TakeBack,
    TicketsBack,
)
from shared.web.fast_routes import Asked

router = APIRouter()


@router.post("/sessions/end")
async def end(question: EndSessions, inventory: InRoom) -> SessionsAnswer:
    inventory.catalogue.layout(question.event_id)
    return SessionsAnswer(sessions=await end_sessions(inventory.db, inventory.redis_stock, question))


@router.post("/passes/floor")
async def min_pass_epoch(floor: PassFloor, inventory: InRoom) -> PassFloor:
    raised = await raise_floor(inventory.db, inventory.redis_stock, floor)
    await inventory.catalogue.refresh()
    return raised


@router.post("/reservations/consents")
async def consents(heard: ConsentsHeard, inventory: InRoom) -> Consents:
    return Consents(consents=await pending_consents(inventory.db, heard.reservation_ids))


@router.post("/reservations/take-back")
async def take_back(question: TakeBack, inventory: InRoom) -> StepsAnswer:
    steps = await inventory.returns.take_back(
        question.steps, keep_blocked=question.keep_blocked, reason=question.reason, actor="orders"
    )
    return StepsAnswer(steps=list(steps))


@router.post("/reservations/return-tickets")
async def return_tickets(question: TicketsBack, inventory: InRoom) -> StepDone:
    return await inventory.ticket_returns.take_back(question, actor="orders")


@router.post("/stock")
async def stock(question: StockQuestion, inventory: InRoom) -> StockFrame:
    inventory.catalogue.layout(question.event_id)
    return await inventory.board.from_db(question.event_id)


async def _read(state: Any, question: ReadReservations) -> ReservationsAnswer:
    inventory: State = state.deps
    async with inventory.reading.connect() as connection:
        found = await read(connection, question.reservation_ids)
    told = [found[r].to_contract() if r in found else None for r in question.reservation_ids]
    return ReservationsAnswer(reservations=told)


def _step(path: str, take: Callable[[Payments, Sequence[PaymentStep]], Coroutine[Any, Any, list[StepDone]]]) -> Route:
    async def taken(state: Any, question: PaymentSteps) -> StepsAnswer:
        return StepsAnswer(steps=await take(state.deps.payments, question.steps))

    return Route(f"/reservations/{path}", Asked(PaymentSteps, taken), methods=["POST"])


HOT_ROUTES = [
    Route("/reservations/read", Asked(ReadReservations, _read), methods=["POST"]),
    _step("begin-payment", Payments.begin),
    _step("end-payment", Payments.end),
    _step("confirm", Payments.confirm),
    _step("release", Payments.release),
    _step("retake", Payments.reacquire),
]
