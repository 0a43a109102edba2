"""The operators' doors to one order, and to the refund of a whole event: with a reason, and into the audit trail."""

from typing import Any

from fastapi import APIRouter, Request

from services.orders.admin import manual_actions
from services.orders.admin.manual_actions import Actor
from services.orders.api.orders import Key
from services.orders.api.schemas import EventRefundAsked, EventRefundResumed, Reason, RefundAsked, ResolveAsked
from services.orders.order.card_numbers import refuse_card_numbers
from services.orders.order.next_step import Order
from services.orders.order.references import idempotency_key
from services.orders.order.search import admin_view, timeline
from services.orders.problems import UnknownOrder
from services.orders.refunds import event_refunds
from services.orders.refunds.plan import RefundSelection
from services.orders.refunds.request import RefundRequest, request_refund
from services.orders.refunds.review import resolve
from services.orders.state import State, state_of
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventIdPath, ReferencePath

router = APIRouter(prefix="/admin/orders", tags=["admin"])


async def _read(state: State, reference: str) -> Order:
    seen = await state.book.read(reference)
    if seen is None:
        raise UnknownOrder
    return seen


@router.get("/{reference}/timeline", summary="Get the timeline of an order")
async def show(reference: ReferencePath, request: Request, operator: AnOperator) -> dict[str, Any]:
    state = state_of(request)
    return await timeline(state.book.db, await _read(state, reference))


@router.post("/{reference}/refund", status_code=202, summary="Refund an order")
async def refund(
    reference: ReferencePath, asked: RefundAsked, request: Request, operator: AnOperator, key: Key = None
) -> dict[str, Any]:
    """An `Idempotency-Key` is needed for an amount or tickets: all that is left can be asked for only once."""
    refuse_card_numbers(asked)
    state, some = state_of(request), asked.tickets
    await _read(state, reference)
    if key is not None or some is not None or asked.amount_minor is not None:
        key = idempotency_key(key)
    wish = RefundSelection(
        amount_minor=asked.amount_minor, seats=tuple(some.seats) if some else (),
        ga=tuple((ga.section_id, ga.quantity) for ga in some.ga) if some else (),
    )  # fmt: skip
    by = Actor.operator(operator, asked.reason)
    await request_refund(state, reference, RefundRequest(wish=wish, by=by, to_sale=asked.return_to_sale), key=key)
    return admin_view(await _read(state, reference))


@router.post("/{reference}/cancel", status_code=202, summary="Cancel an order that is not paid")
async def cancel(reference: ReferencePath, asked: Reason, request: Request, operator: AnOperator) -> dict[str, Any]:
    refuse_card_numbers(asked)
    state = state_of(request)
    await manual_actions.cancel(state, await _read(state, reference), Actor.operator(operator, asked.reason))
    return admin_view(await _read(state, reference))


@router.post("/{reference}/retry", status_code=202, summary="Retry an order now")
async def retry(reference: ReferencePath, asked: Reason, request: Request, operator: AnOperator) -> dict[str, Any]:
    refuse_card_numbers(asked)
    state = state_of(request)
    await manual_actions.retry(state, await _read(state, reference), Actor.operator(operator, asked.reason))
    return admin_view(await _read(state, reference))


@router.post("/{reference}/resolve", status_code=202, summary="Resolve an order in review")
async def decide(
    reference: ReferencePath, asked: ResolveAsked, request: Request, operator: AnOperator
) -> dict[str, Any]:
    refuse_card_numbers(asked)
    state, by = state_of(request), Actor.operator(operator, asked.reason)
    seen = await _read(state, reference)
    await resolve(state, seen, asked.decision, by, to_sale=asked.return_to_sale)
    return admin_view(await _read(state, reference))


@router.post("/events/{event_id}/refund", status_code=202, summary="Refund an event")
async def refund_event(
    event_id: EventIdPath, asked: EventRefundAsked, request: Request, operator: AnOperator
) -> dict[str, Any]:
    """Asked again while it runs, it only answers how far it is."""
    refuse_card_numbers(asked)
    db, by = state_of(request).db, Actor.operator(operator, asked.reason)
    rate, to_sale = asked.rate_per_s, asked.return_to_sale
    await event_refunds.start(db, event_id, by, rate_per_s=rate, to_sale=to_sale)
    return await event_refunds.progress(db, event_id)


@router.get("/events/{event_id}/refund", summary="Get the progress of an event refund")
async def event_refund(event_id: EventIdPath, request: Request, operator: Viewer) -> dict[str, Any]:
    return await event_refunds.progress(state_of(request).book.db, event_id)


@router.post("/events/{event_id}/refund/pause", summary="Pause the event refund")
async def pause(event_id: EventIdPath, asked: Reason, request: Request, operator: AnOperator) -> dict[str, Any]:
    refuse_card_numbers(asked)
    db = state_of(request).db
    await event_refunds.steer(db, event_id, Actor.operator(operator, asked.reason), status="paused")
    return await event_refunds.progress(db, event_id)


@router.post("/events/{event_id}/refund/resume", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, asked: EventRefundResumed, request: Request, operator: AnOperator
) -> dict[str, Any]:
    refuse_card_numbers(asked)
    db, by = state_of(request).db, Actor.operator(operator, asked.reason)
    await event_refunds.steer(db, event_id, by, status="running", rate_per_s=asked.rate_per_s)
    return await event_refunds.progress(db, event_id)
