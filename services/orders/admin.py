"""The operators' doors: find orders, give money back, and check the promises about money over the ledger."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy import or_, select

from services.orders import audit, ledger
from services.orders.api import Page, PageSize
from services.orders.card_numbers import refuse_card_numbers
from services.orders.frames import body
from services.orders.giving_back import give_back_all
from services.orders.problems import UnknownOrder
from services.orders.room import Room
from services.orders.schemas import RefundAsked
from services.orders.tables import order
from shared.auth import Operator, operators
from shared.inputs import EventId, EventIdPath, ReferencePath

router = APIRouter(prefix="/admin/orders", tags=["admin"])
Viewer = Annotated[Operator, operators("viewer")]
Refunder = Annotated[Operator, operators("operator")]
Status = Annotated[str | None, Query(pattern="^[a-z_]{1,32}$")]
Search = Annotated[str | None, Query(min_length=2, max_length=200, pattern=r"^[^\x00]*$")]


def _room(request: Request) -> Room:
    room: Room = request.app.state.room
    return room


@router.get("/orders", summary="Orders by event, status, reference or e-mail, newest first")
async def search(
    request: Request, operator: Viewer, event_id: EventId | None = None, status: Status = None, q: Search = None,
    page: Page = 1, page_size: PageSize = 50,
) -> dict[str, Any]:  # fmt: skip
    found = select(order.c.reference).where(order.c.status != "tombstone")
    if event_id is not None:
        found = found.where(order.c.event_id == event_id)
    if status is not None:
        found = found.where(order.c.status == status)
    if q is not None:
        found = found.where(or_(order.c.reference == q, order.c.customer_email == q, order.c.reservation_id == q))
    found = found.order_by(order.c.created_at.desc(), order.c.reference).limit(page_size).offset((page - 1) * page_size)
    engine = _room(request).book.engine
    async with engine.connect() as connection:
        references = list(await connection.scalars(found))
    orders = await ledger.read_many(engine, references)
    return {"page": page, "page_size": page_size, "orders": [body(orders[r]) for r in references if r in orders]}


@router.post("/orders/{reference}/refund", status_code=202, summary="Give the whole order's money back")
async def refund(reference: ReferencePath, asked: RefundAsked, request: Request, operator: Refunder) -> dict[str, Any]:
    room = _room(request)
    refuse_card_numbers(asked)
    seen = await room.book.read(reference)
    if seen is None:
        raise UnknownOrder
    await give_back_all(room, seen, reason=asked.reason, asked_by=operator.name)
    latest = await room.book.read(reference)
    assert latest is not None
    return body(latest)


@router.get("/events/{event_id}/audit", summary="Are the promises about orders and money kept, by the ledger?")
async def check(event_id: EventIdPath, request: Request, operator: Viewer) -> dict[str, Any]:
    engine = _room(request).engine
    return {"confirmed": await audit.confirmed(engine, event_id), "invariants": await audit.check(engine, event_id)}
