"""The admin API of orders: their search and timeline, what support does to one of them (refund, cancel, retry, resolve)
or to those of an event (refund, share in the background), their commands, and the audit log.

Every action needs a reason and is written to the audit log.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime

from services.orders.checkout.requests import refuse_card_numbers
from services.orders.model.order import Order
from services.orders.model.refund_plan import RefundSelection
from services.orders.model.view import admin_view
from services.orders.problems import UnknownOrder
from services.orders.requests import by_hand, event_refund
from services.orders.requests.refund import RefundRequest, request_refund
from services.orders.state import State, state_of
from services.orders.store import command_log
from services.orders.store.search import Search, find, timeline
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
from shared.security.auth import AnOperator, Operator, Viewer
from shared.web.request import EventIdPath, IdempotencyKey, ReferencePath, ReferenceQuery, idempotency_key

router = APIRouter(prefix="/admin/orders", tags=["admin"])
StatusQuery = Annotated[str | None, Query(alias="status", pattern="^[a-z_]{1,32}$")]
TextQuery = Annotated[str | None, Query(min_length=2, max_length=200, pattern=NO_NULL)]
COMMAND_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
CommandIdPath = Annotated[str, Path(pattern=COMMAND_ID)]
CommandIdQuery = Annotated[str | None, Query(pattern=COMMAND_ID)]
SubjectQuery = Annotated[str | None, Query(alias="subject", pattern=r"^(event|order|webhook):[A-Za-z0-9_-]{1,64}$")]


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


@router.get("", summary="Search orders")
async def search(
    request: Request, operator: AnOperator, event_id: EventId | None = None, status: StatusQuery = None,
    q: TextQuery = None, since: AwareDatetime | None = None, until: AwareDatetime | None = None,
    mail_failed: bool = False, before: ReferenceQuery = None, page_size: PageSizeQuery = 50,
) -> OrderPage:  # fmt: skip
    """Newest first. `q` matches names in part; references, e-mail addresses, seats and charges exactly. `mail_failed`
    finds those whose buyer could not be mailed.
    """
    state, page = state_of(request), PageRequest(request.url, before, page_size)
    wanted = Search(
        q=q and tidy(q), event_id=event_id, status=status, since=since, until=until, mail_failed=mail_failed
    )
    return await find(state.db, wanted, page, providers=state.providers)


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
    decide = partial(by_hand.resolve_review, decision=body.decision, return_to_sale=body.return_to_sale)
    return await _act(request, reference, _actor(operator, body), decide)


@router.post("/events/{event_id}/refund", status_code=202, summary="Refund an event")
async def refund_event(
    event_id: EventIdPath, body: EventRefundRequest, request: Request, operator: AnOperator
) -> EventRefundProgress:
    """Requested again while it runs, it only answers its progress."""
    db, actor = state_of(request).db, _actor(operator, body)
    return await event_refund.start(db, event_id, actor, rate_per_s=body.rate_per_s, return_to_sale=body.return_to_sale)


@router.get("/events/{event_id}/refund", summary="Get the progress of an event refund")
async def get_event_refund(event_id: EventIdPath, request: Request, operator: Viewer) -> EventRefundProgress:
    return await event_refund.progress(state_of(request).store.db, event_id)


@router.post("/events/{event_id}/refund/pause", summary="Pause the event refund")
async def pause(event_id: EventIdPath, body: Reason, request: Request, operator: AnOperator) -> EventRefundProgress:
    return await event_refund.change_status(state_of(request).db, event_id, _actor(operator, body), status="paused")


@router.post("/events/{event_id}/refund/resume", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, body: EventRefundResume, request: Request, operator: AnOperator
) -> EventRefundProgress:
    db, actor = state_of(request).db, _actor(operator, body)
    return await event_refund.change_status(db, event_id, actor, status="running", rate_per_s=body.rate_per_s)


@router.get("/commands", summary="List commands")
async def list_commands(
    request: Request, operator: Viewer, status: CommandStatus | None = None, reference: ReferenceQuery = None,
    event_id: EventId | None = None, before: CommandIdQuery = None, page_size: PageSizeQuery = 50,
) -> CommandPage:  # fmt: skip
    """Newest first."""
    page = PageRequest(request.url, before, page_size)
    db = state_of(request).db
    return await command_log.list_commands(db, page, status=status, reference=reference, event_id=event_id)


@router.post("/commands/{command_id}/rerun", status_code=202, summary="Replay a command")
async def replay(operator: AnOperator, command_id: CommandIdPath, body: Reason, request: Request) -> Command:
    return await command_log.replay(state_of(request).store, command_id, actor=operator.name, reason=body.reason)


@router.get("/events/{event_id}/background-share", summary="Get the share of checkouts processed in the background")
async def get_share(operator: Viewer, event_id: EventIdPath, request: Request) -> BackgroundShareAnswer:
    shares = state_of(request).background_share
    await shares.refresh()
    return BackgroundShareAnswer(event_id=event_id, background_percent=shares.percent(event_id))


@router.patch(
    "/events/{event_id}/background-share", summary="Change the share of checkouts processed in the background"
)
async def change_share(
    operator: AnOperator, event_id: EventIdPath, body: BackgroundShareRequest, request: Request
) -> BackgroundShareChanged:
    percent = body.background_percent
    changed = await state_of(request).background_share.change(
        event_id, percent, actor=operator.name, action="background", reason=body.reason
    )
    return BackgroundShareChanged(event_id=event_id, background_percent=percent, changed=changed)


@router.get("/changes", summary="List audit log entries")
async def list_changes(request: Request, operator: Viewer, page: BeforeId, subject: SubjectQuery = None) -> AuditPage:
    """Newest first, of one subject or of all."""
    return await audit_log.read_page(state_of(request).db, page, subject=subject)
