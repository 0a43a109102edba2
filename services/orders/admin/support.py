"""The admin API of one order (timeline, refund, cancel, retry, resolve), and of the refund of a whole event.

Every action needs a reason and is written to the audit log.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request

from services.orders.api.orders import IdempotencyKey
from services.orders.checkout.card_numbers import refuse_card_numbers
from services.orders.model.order import Order
from services.orders.model.refund_plan import RefundSelection
from services.orders.problems import UnknownOrder
from services.orders.refunds import event_refunds
from services.orders.requests import by_hand
from services.orders.requests.refund import RefundRequest, request_refund
from services.orders.requests.review import resolve_review
from services.orders.state import State, state_of
from services.orders.store.search import admin_view, timeline
from services.orders.store.store import OrderStore
from shared.audit_log import Actor
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
from shared.security.auth import AnOperator, Operator, Viewer
from shared.web.parameters import EventIdPath, ReferencePath, idempotency_key

router = APIRouter(prefix="/admin/orders", tags=["admin"])


async def _read(state: State, reference: str) -> Order:
    order = await state.store.read(reference)
    if order is None:
        raise UnknownOrder
    return order


def _actor(operator: Operator, body: Reason) -> Actor:
    """Raises `CardNumberRefused`: what an operator writes is kept in the audit log."""
    refuse_card_numbers(body)
    return Actor(operator.name, body.reason, role=operator.role)


async def _act(
    request: Request, reference: str, actor: Actor,
    action: Callable[[OrderStore, Order, Actor], Awaitable[object]],
) -> AdminOrder:  # fmt: skip
    """Does this to the order and answers how it is now."""
    state = state_of(request)
    await action(state.store, await _read(state, reference), actor)
    return admin_view(await _read(state, reference))


@router.get("/{reference}/timeline", summary="Get the timeline of an order")
async def get_timeline(reference: ReferencePath, request: Request, operator: AnOperator) -> Timeline:
    state = state_of(request)
    return await timeline(state.store.db, await _read(state, reference))


@router.post("/{reference}/refund", status_code=202, summary="Refund an order")
async def refund(
    reference: ReferencePath, body: RefundBody, request: Request, operator: AnOperator, key: IdempotencyKey = None
) -> AdminOrder:
    """Needs an `Idempotency-Key` for an amount or for some tickets; all that is left is refunded once."""

    async def request_this(store: OrderStore, order: Order, actor: Actor) -> None:
        some = body.tickets
        needs_key = key is not None or some is not None or body.amount_minor is not None
        selection = RefundSelection(
            amount_minor=body.amount_minor, seats=tuple(some.seats) if some else (),
            ga=tuple((ga.section_id, ga.quantity) for ga in some.ga) if some else (),
        )  # fmt: skip
        wanted = RefundRequest(selection=selection, actor=actor, return_to_sale=body.return_to_sale)
        await request_refund(store, order.reference, wanted, key=idempotency_key(key) if needs_key else None)

    return await _act(request, reference, _actor(operator, body), request_this)


@router.post("/{reference}/cancel", status_code=202, summary="Cancel an order that is not paid")
async def cancel(reference: ReferencePath, body: Reason, request: Request, operator: AnOperator) -> AdminOrder:
    return await _act(request, reference, _actor(operator, body), by_hand.cancel)


@router.post("/{reference}/retry", status_code=202, summary="Retry an order now")
async def retry(reference: ReferencePath, body: Reason, request: Request, operator: AnOperator) -> AdminOrder:
    return await _act(request, reference, _actor(operator, body), by_hand.retry)


@router.post("/{reference}/resolve", status_code=202, summary="Resolve an order in review")
async def resolve(reference: ReferencePath, body: ResolveRequest, request: Request, operator: AnOperator) -> AdminOrder:
    decide = partial(resolve_review, decision=body.decision, return_to_sale=body.return_to_sale)
    return await _act(request, reference, _actor(operator, body), decide)


@router.post("/events/{event_id}/refund", status_code=202, summary="Refund an event")
async def refund_event(
    event_id: EventIdPath, body: EventRefundRequest, request: Request, operator: AnOperator
) -> EventRefundProgress:
    """Requested again while it runs, it only answers its progress."""
    db, actor = state_of(request).db, _actor(operator, body)
    return await event_refunds.start(
        db, event_id, actor, rate_per_s=body.rate_per_s, return_to_sale=body.return_to_sale
    )


@router.get("/events/{event_id}/refund", summary="Get the progress of an event refund")
async def get_event_refund(event_id: EventIdPath, request: Request, operator: Viewer) -> EventRefundProgress:
    return await event_refunds.progress(state_of(request).store.db, event_id)


@router.post("/events/{event_id}/refund/pause", summary="Pause the event refund")
async def pause(event_id: EventIdPath, body: Reason, request: Request, operator: AnOperator) -> EventRefundProgress:
    return await event_refunds.change_status(state_of(request).db, event_id, _actor(operator, body), status="paused")


@router.post("/events/{event_id}/refund/resume", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, body: EventRefundResume, request: Request, operator: AnOperator
) -> EventRefundProgress:
    db, actor = state_of(request).db, _actor(operator, body)
    return await event_refunds.change_status(db, event_id, actor, status="running", rate_per_s=body.rate_per_s)
