"""The admin API of orders: their search and timeline, what support does to one of them (refund, cancel, retry, resolve)
or to those of an event (refund, share in the background), their commands, and the audit log.

Every action needs a reason and is written to the audit log.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime

from services.orders.checkout.event_file import change_background_share
from services.orders.checkout.requests import refuse_card_numbers
from services.orders.model.order import Order
from services.orders.model.rules import RefundSelection
from services.orders.model.view import admin_view
from services.orders.requests.requests import (
    RefundRequest,
    cancel_by_hand,
    change_event_refund,
    event_refund_progress,
    request_refund,
    resolve_review,
    retry_by_hand,
    start_event_refund,
)
from services.orders.state import OrdersState
from services.orders.store import support
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log
from shared.audit_log import Actor
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.orders import (
    AdminOrder,
    BackgroundShareAnswer,
    BackgroundShareChanged,
    BackgroundShareRequest,
    Command,
    CommandPage,
    CommandStatus,
    EventRefundProgress,
    EventRefundRequest,
    EventRefundResume,
    OrderPage,
    Reason,
    RefundBody,
    ResolveRequest,
    Timeline,
)
from shared.contracts.fields import NO_NULL, EventId, tidy
from shared.postgres.pages import BeforeId, PageRequest, PageSizeQuery
from shared.rules.two_persons import control
from shared.security.auth import AnOperator, Operator, Viewer
from shared.web.request import EventIdPath, IdempotencyKey, ReferencePath, ReferenceQuery, idempotency_key

router = APIRouter(prefix="/admin/orders", tags=["admin"])
StatusQuery = Annotated[str | None, Query(alias="status", pattern="^[a-z_]{1,32}$")]
TextQuery = Annotated[str | None, Query(min_length=2, max_length=200, pattern=NO_NULL)]
COMMAND_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
CommandIdPath = Annotated[str, Path(pattern=COMMAND_ID)]
CommandIdQuery = Annotated[str | None, Query(pattern=COMMAND_ID)]
SubjectQuery = Annotated[str | None, Query(alias="subject", pattern=r"^(event|order|webhook):[A-Za-z0-9_-]{1,64}$")]


def _actor(operator: Operator, body: Reason) -> Actor:
    """Raises `CardNumberRefused`: what an operator writes is kept in the audit log."""
    refuse_card_numbers(body)
    return Actor(operator.name, body.reason, role=operator.role)


async def _act(
    state: OrdersState, reference: str, actor: Actor,
    action: Callable[[OrderStore, Order, Actor], Awaitable[object]],
) -> AdminOrder:  # fmt: skip
    """Does this to the order and answers how it is now."""
    await action(state.store, await state.store.require(reference), actor)
    return admin_view(await state.store.require(reference))


@router.get("", operation_id="search_orders", summary="Search orders")
async def search(
    request: Request, state: OrdersState, operator: AnOperator, event_id: EventId | None = None,
    status: StatusQuery = None, q: TextQuery = None, since: AwareDatetime | None = None,
    until: AwareDatetime | None = None, mail_failed: bool = False, before: ReferenceQuery = None,
    page_size: PageSizeQuery = 50,
) -> OrderPage:  # fmt: skip
    """Newest first. `q` matches names in part; references, e-mail addresses, seats and charges exactly. `mail_failed`
    finds those whose buyer could not be mailed.
    """
    page = PageRequest(request.url, before, page_size)
    return await support.find(
        state.db, page, providers=state.providers, q=q and tidy(q), event_id=event_id, status=status, since=since,
        until=until, mail_failed=mail_failed,
    )  # fmt: skip


@router.get("/{reference}/timeline", operation_id="read_timeline", summary="Get the timeline of an order")
async def get_timeline(reference: ReferencePath, state: OrdersState, operator: AnOperator) -> Timeline:
    return await support.timeline(state.db, await state.store.require(reference))


@router.post("/{reference}/refund", status_code=202, operation_id="refund_order", summary="Refund an order")
async def refund(
    reference: ReferencePath, body: RefundBody, state: OrdersState, operator: AnOperator, key: IdempotencyKey = None
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

    return await _act(state, reference, _actor(operator, body), request_this)


@router.post(
    "/{reference}/cancel", status_code=202, operation_id="cancel_order", summary="Cancel an order that is not paid"
)
async def cancel(reference: ReferencePath, body: Reason, state: OrdersState, operator: AnOperator) -> AdminOrder:
    return await _act(state, reference, _actor(operator, body), cancel_by_hand)


@router.post("/{reference}/retry", status_code=202, operation_id="retry_order", summary="Retry an order now")
async def retry(reference: ReferencePath, body: Reason, state: OrdersState, operator: AnOperator) -> AdminOrder:
    return await _act(state, reference, _actor(operator, body), retry_by_hand)


@router.post(
    "/{reference}/resolve", status_code=202, operation_id="resolve_order", summary="Resolve an order in review"
)
async def resolve(
    reference: ReferencePath, body: ResolveRequest, state: OrdersState, operator: AnOperator
) -> AdminOrder:
    decide = partial(resolve_review, decision=body.decision, return_to_sale=body.return_to_sale)
    return await _act(state, reference, _actor(operator, body), decide)


@router.post(
    "/events/{event_id}/refund",
    status_code=202,
    operation_id="start_event_refund",
    openapi_extra=control("refund_event"),
    summary="Refund an event",
)
async def refund_event(
    event_id: EventIdPath, body: EventRefundRequest, state: OrdersState, operator: AnOperator
) -> EventRefundProgress:
    """Requested again while it runs, it only answers its progress."""
    actor = _actor(operator, body)
    return await start_event_refund(
        state.db, event_id, actor, rate_per_s=body.rate_per_s, return_to_sale=body.return_to_sale
    )


@router.get(
    "/events/{event_id}/refund", operation_id="read_event_refund", summary="Get the progress of an event refund"
)
async def get_event_refund(event_id: EventIdPath, state: OrdersState, operator: Viewer) -> EventRefundProgress:
    return await event_refund_progress(state.db, event_id)


@router.post("/events/{event_id}/refund/pause", operation_id="pause_event_refund", summary="Pause the event refund")
async def pause(event_id: EventIdPath, body: Reason, state: OrdersState, operator: AnOperator) -> EventRefundProgress:
    return await change_event_refund(state.db, event_id, _actor(operator, body), status="paused")


@router.post("/events/{event_id}/refund/resume", operation_id="resume_event_refund", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, body: EventRefundResume, state: OrdersState, operator: AnOperator
) -> EventRefundProgress:
    actor = _actor(operator, body)
    return await change_event_refund(state.db, event_id, actor, status="running", rate_per_s=body.rate_per_s)


@router.get("/commands", operation_id="list_commands", summary="List commands")
async def list_commands(
    request: Request, state: OrdersState, operator: Viewer, status: CommandStatus | None = None,
    reference: ReferenceQuery = None, event_id: EventId | None = None, before: CommandIdQuery = None,
    page_size: PageSizeQuery = 50,
) -> CommandPage:  # fmt: skip
    """Newest first."""
    page = PageRequest(request.url, before, page_size)
    return await support.list_commands(state.db, page, status=status, reference=reference, event_id=event_id)


@router.post("/commands/{command_id}/rerun", status_code=202, operation_id="replay_command", summary="Replay a command")
async def replay(operator: AnOperator, command_id: CommandIdPath, body: Reason, state: OrdersState) -> Command:
    return await support.replay(state.store, command_id, actor=operator.name, reason=body.reason)


@router.get(
    "/events/{event_id}/background-share",
    operation_id="read_background_share",
    summary="Get the share of checkouts processed in the background",
)
async def get_share(operator: Viewer, event_id: EventIdPath, state: OrdersState) -> BackgroundShareAnswer:
    state.prices.invalidate(event_id)
    percent = (await state.prices.rules(event_id)).background_percent
    return BackgroundShareAnswer(event_id=event_id, background_percent=percent)


@router.patch(
    "/events/{event_id}/background-share",
    operation_id="set_background_share",
    summary="Change the share of checkouts processed in the background",
)
async def change_share(
    operator: AnOperator, event_id: EventIdPath, body: BackgroundShareRequest, state: OrdersState
) -> BackgroundShareChanged:
    percent = body.background_percent
    changed = await change_background_share(
        state.db, event_id, percent, actor=operator.name, reason=body.reason, rules=state.prices
    )
    return BackgroundShareChanged(event_id=event_id, background_percent=percent, changed=changed)


@router.get("/changes", operation_id="list_audit_log", summary="List audit log entries")
async def list_changes(state: OrdersState, operator: Viewer, page: BeforeId, subject: SubjectQuery = None) -> AuditPage:
    """Newest first, of one subject or of all."""
    return await audit_log.read_page(state.db, page, subject=subject)
