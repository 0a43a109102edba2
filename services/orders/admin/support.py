"""The admin API of one order (timeline, refund, cancel, retry, resolve), and of the refund of a whole event.

Every action needs a reason and is written to the audit log.
"""

from fastapi import APIRouter, Request

from services.orders.api.orders import IdempotencyKey
from services.orders.audit.audit_log import Actor
from services.orders.order import manual_actions
from services.orders.order.card_numbers import refuse_card_numbers
from services.orders.order.next_step import Order
from services.orders.order.references import idempotency_key
from services.orders.order.search import admin_view, timeline
from services.orders.problems import UnknownOrder
from services.orders.refunds import event_refunds
from services.orders.refunds.plan import RefundSelection
from services.orders.refunds.request import RefundRequest, request_refund
from services.orders.refunds.review import resolve_review
from services.orders.state import State, state_of
from shared.contracts.admin.orders import (
    AdminOrder,
    EventRefundProgress,
    EventRefundRequest,
    EventRefundResume,
    Reason,
    RefundBody,
    ResolveRequest,
    Timeline,
)
from shared.postgres.engine import AsyncEngine
from shared.security.auth import AnOperator, Viewer
from shared.web.fields import EventIdPath, ReferencePath

router = APIRouter(prefix="/admin/orders", tags=["admin"])


async def _read(state: State, reference: str) -> Order:
    order = await state.repository.read(reference)
    if order is None:
        raise UnknownOrder
    return order


async def _view(state: State, reference: str) -> AdminOrder:
    return AdminOrder.model_validate(admin_view(await _read(state, reference)))


@router.get("/{reference}/timeline", summary="Get the timeline of an order")
async def get_timeline(reference: ReferencePath, request: Request, operator: AnOperator) -> Timeline:
    state = state_of(request)
    return Timeline.model_validate(await timeline(state.repository.db, await _read(state, reference)))


@router.post("/{reference}/refund", status_code=202, summary="Refund an order")
async def refund(
    reference: ReferencePath, body: RefundBody, request: Request, operator: AnOperator, key: IdempotencyKey = None
) -> AdminOrder:
    """Needs an `Idempotency-Key` for an amount or for some tickets; all that is left is refunded once."""
    refuse_card_numbers(body)
    state, some = state_of(request), body.tickets
    await _read(state, reference)
    if key is not None or some is not None or body.amount_minor is not None:
        key = idempotency_key(key)
    selection = RefundSelection(
        amount_minor=body.amount_minor, seats=tuple(some.seats) if some else (),
        ga=tuple((ga.section_id, ga.quantity) for ga in some.ga) if some else (),
    )  # fmt: skip
    actor = Actor.operator(operator, body.reason)
    wanted = RefundRequest(selection=selection, actor=actor, return_to_sale=body.return_to_sale)
    await request_refund(state.db, state.job_queue, reference, wanted, key=key)
    return await _view(state, reference)


@router.post("/{reference}/cancel", status_code=202, summary="Cancel an order that is not paid")
async def cancel(reference: ReferencePath, body: Reason, request: Request, operator: AnOperator) -> AdminOrder:
    refuse_card_numbers(body)
    state, actor = state_of(request), Actor.operator(operator, body.reason)
    await manual_actions.cancel(state.db, state.job_queue, await _read(state, reference), actor)
    return await _view(state, reference)


@router.post("/{reference}/retry", status_code=202, summary="Retry an order now")
async def retry(reference: ReferencePath, body: Reason, request: Request, operator: AnOperator) -> AdminOrder:
    refuse_card_numbers(body)
    state, actor = state_of(request), Actor.operator(operator, body.reason)
    await manual_actions.retry(state.db, state.job_queue, await _read(state, reference), actor)
    return await _view(state, reference)


@router.post("/{reference}/resolve", status_code=202, summary="Resolve an order in review")
async def resolve(reference: ReferencePath, body: ResolveRequest, request: Request, operator: AnOperator) -> AdminOrder:
    refuse_card_numbers(body)
    state, actor = state_of(request), Actor.operator(operator, body.reason)
    order = await _read(state, reference)
    await resolve_review(
        state.db, state.job_queue, order, body.decision, actor=actor, return_to_sale=body.return_to_sale
    )
    return await _view(state, reference)


async def _progress(db: AsyncEngine, event_id: str) -> EventRefundProgress:
    return EventRefundProgress.model_validate(await event_refunds.progress(db, event_id))


@router.post("/events/{event_id}/refund", status_code=202, summary="Refund an event")
async def refund_event(
    event_id: EventIdPath, body: EventRefundRequest, request: Request, operator: AnOperator
) -> EventRefundProgress:
    """Requested again while it runs, it only answers its progress."""
    refuse_card_numbers(body)
    db, actor = state_of(request).db, Actor.operator(operator, body.reason)
    await event_refunds.start(db, event_id, actor, rate_per_s=body.rate_per_s, return_to_sale=body.return_to_sale)
    return await _progress(db, event_id)


@router.get("/events/{event_id}/refund", summary="Get the progress of an event refund")
async def get_event_refund(event_id: EventIdPath, request: Request, operator: Viewer) -> EventRefundProgress:
    return await _progress(state_of(request).repository.db, event_id)


@router.post("/events/{event_id}/refund/pause", summary="Pause the event refund")
async def pause(event_id: EventIdPath, body: Reason, request: Request, operator: AnOperator) -> EventRefundProgress:
    refuse_card_numbers(body)
    db, actor = state_of(request).db, Actor.operator(operator, body.reason)
    await event_refunds.change_status(db, event_id, actor, status="paused")
    return await _progress(db, event_id)


@router.post("/events/{event_id}/refund/resume", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, body: EventRefundResume, request: Request, operator: AnOperator
) -> EventRefundProgress:
    refuse_card_numbers(body)
    db, actor = state_of(request).db, Actor.operator(operator, body.reason)
    await event_refunds.change_status(db, event_id, actor, status="running", rate_per_s=body.rate_per_s)
    return await _progress(db, event_id)
