"""What neighbours ask: does a payment still stand, and how does an order look now?"""

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter, Request
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.order import leases
from services.orders.order.view import frame
from services.orders.refunds.request import refund_oversold
from services.orders.tables import order
from shared.contracts.orders import (
    OrdersAnswer,
    OrdersQuestion,
    PaymentRef,
    PaymentsAnswer,
    PaymentsQuestion,
    RefundsAnswer,
    RefundsQuestion,
)
from shared.postgres.engine import AsyncEngine

router = APIRouter()
Word = Literal["live", "dead", "absent"]


@router.post("/reservations/status")
async def payments(question: PaymentsQuestion, request: Request) -> PaymentsAnswer:
    return PaymentsAnswer(payments=await standing(request.app.state.deps.db, question.payments))


@router.post("/orders/read")
async def read(question: OrdersQuestion, request: Request) -> OrdersAnswer:
    found = await leases.read_many(request.app.state.deps.book.db, question.references)
    return OrdersAnswer(orders=[frame(found[r]) if r in found else None for r in question.references])


@router.post("/orders/refund")
async def refund(question: RefundsQuestion, request: Request) -> RefundsAnswer:
    words = [await refund_oversold(request.app.state.deps, ref, question.reason) for ref in question.refunds]
    return RefundsAnswer(refunds=words)


async def standing(db: AsyncEngine, asked: Sequence[PaymentRef]) -> list[Word]:
    """Where an order is missing a tombstone is put first, in a transaction of its own: what was in flight has landed or
    lost before the rows are read.
    """
    references = sorted({payment.order_reference for payment in asked})
    async with db.begin() as connection:
        rows = [{"reference": reference, "status": "tombstone"} for reference in references]
        await connection.execute(insert(order).values(rows).on_conflict_do_nothing())
    known = select(order.c.reference, order.c.status, order.c.reservation_id).where(order.c.reference.in_(references))
    async with db.connect() as connection:
        orders = {row.reference: row for row in await connection.execute(known)}
    return [_word(orders[p.order_reference].status, orders[p.order_reference].reservation_id, p) for p in asked]


def _word(status: str, reservation_id: str | None, asked: PaymentRef) -> Word:
    """An order of another reservation is none of this one. `review` and late money still need their hold."""
    if status == "tombstone":
        return "absent"
    if reservation_id != asked.reservation_id:
        return "dead"
    return "dead" if status in ("cancelled", "expired", "refunded") else "live"
