"""What neighbours ask: the end of sessions, payment's steps on holds, reservations and the stock by the ledger."""

from collections.abc import Sequence

from fastapi import APIRouter, Response
from pydantic import BaseModel

from services.inventory.consents import unheard
from services.inventory.record import read
from services.inventory.room import InRoom
from services.inventory.sessions import end_sessions, raise_floor
from shared.contracts.frames import StockFrame
from shared.contracts.inventory import (
    Consents,
    ConsentsHeard,
    EndSessions,
    PassFloor,
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

router = APIRouter()


@router.post("/sessions/end")
async def end(question: EndSessions, inventory: InRoom) -> SessionsAnswer:
    inventory.catalogue.layout(question.event_id)
    return SessionsAnswer(sessions=await end_sessions(inventory.engine, inventory.gate, question))


@router.post("/passes/floor")
async def pass_floor(floor: PassFloor, inventory: InRoom) -> PassFloor:
    raised = await raise_floor(inventory.engine, inventory.gate, floor)
    await inventory.catalogue.refresh()
    return raised


@router.post("/reservations/read")
async def read_reservations(question: ReadReservations, inventory: InRoom) -> Response:
    async with inventory.reading.connect() as connection:
        found = await read(connection, question.reservation_ids)
    told = [found[r].contract() if r in found else None for r in question.reservation_ids]
    return _told(ReservationsAnswer(reservations=told))


@router.post("/reservations/consents")
async def consents(heard: ConsentsHeard, inventory: InRoom) -> Consents:
    return Consents(consents=await unheard(inventory.engine, heard.reservation_ids))


@router.post("/reservations/begin-payment")
async def begin_payment(question: PaymentSteps, inventory: InRoom) -> Response:
    return _answer(await inventory.payments.begin(question.steps))


@router.post("/reservations/end-payment")
async def end_payment(question: PaymentSteps, inventory: InRoom) -> Response:
    return _answer(await inventory.payments.end(question.steps))


@router.post("/reservations/confirm")
async def confirm(question: PaymentSteps, inventory: InRoom) -> Response:
    return _answer(await inventory.payments.confirm(question.steps))


@router.post("/reservations/release")
async def release(question: PaymentSteps, inventory: InRoom) -> Response:
    return _answer(await inventory.payments.release(question.steps))


@router.post("/reservations/retake")
async def retake(question: PaymentSteps, inventory: InRoom) -> Response:
    return _answer(await inventory.payments.retake(question.steps))


@router.post("/reservations/take-back")
async def take_back(question: TakeBack, inventory: InRoom) -> Response:
    return _answer(
        await inventory.returns.take_back(
            question.steps, keep_blocked=question.keep_blocked, reason=question.reason, actor="orders"
        )
    )


@router.post("/reservations/return-tickets")
async def return_tickets(question: TicketsBack, inventory: InRoom) -> StepDone:
    return await inventory.ticket_returns.take_back(question, actor="orders")


@router.post("/stock")
async def stock(question: StockQuestion, inventory: InRoom) -> StockFrame:
    inventory.catalogue.layout(question.event_id)
    return await inventory.board.from_ledger(question.event_id)


def _answer(steps: Sequence[StepDone]) -> Response:
    return _told(StepsAnswer(steps=list(steps)))


def _told(answer: BaseModel) -> Response:
    """As it stands: the framework would check and copy every member of a batch once more."""
    return Response(answer.model_dump_json(), media_type="application/json")
