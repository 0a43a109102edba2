"""The operators' API for those who help buyers: find orders, read the timeline of one and the log of commands, decide
about an order in review, retry one now, replay a command, refund an event.

The command log tells what was done for an order, why, and with which result. A replay makes the order due now: its
process decides from the rows what follows, as always. It is a command of its own, so that the result of the first stays
visible. Every action needs a reason and is written to the audit log.

A whole event is refunded at a given rate. Its row holds all progress, so any process continues after a restart. Each
batch is requested in one transaction with the row's progress: no order is refunded twice and none is left out. Orders
that wait for payment are cancelled. The refund is done when a pass over all orders finds nothing to refund and nothing
that may still be paid.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime
from sqlalchemy import Row, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from features.support.orders.tables import event_refund
from features.support.schemas import (
    Command,
    CommandPage,
    CommandStatus,
    Decision,
    EventRefundProgress,
    EventRefundRequest,
    EventRefundResume,
    OrderPage,
    RenameRequest,
    ResolveRequest,
    Timeline,
    TimelineEntry,
)
from services.orders.admin.orders import act, actor_of
from services.orders.model.order import REPLAY_OF, Order, command_id, place_of
from services.orders.model.order import JournalEntry as Entry
from services.orders.model.rules import RefundSelection, allowed_decisions
from services.orders.model.update import OrderUpdate
from services.orders.model.view import admin_view
from services.orders.problems import OrderNotPending, RefundRefused
from services.orders.requests.names import change_names
from services.orders.requests.requests import RefundRequest, cancellation, record, refund_in, request_refund
from services.orders.state import OrdersState
from services.orders.store.store import OrderStore, read_in, read_many, save_in, wake_in
from services.orders.tables import audit_log, open_order, webhook_inbox
from services.orders.tickets.show import read_show
from shared.audit_log import Actor, of_event
from shared.concurrency.background import Quiet, wake
from shared.contracts.admin.orders import AdminOrder, Reason
from shared.contracts.event_parts.names import NamesChange
from shared.contracts.fields import NO_NULL, EventId, tidy
from shared.errors.problems import Problem
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.postgres.pages import PageRequest, PageSizeQuery
from shared.runtime.clock import from_datetime, rfc3339
from shared.runtime.logging import get_logger
from shared.security.auth import AnOperator, Viewer, control
from shared.web.request import EventIdPath, ReferencePath, ReferenceQuery

_SEARCH = statement(__package__, "search")
_TIMELINE = statement(__package__, "timeline")
_LIST = statement(__package__, "list_commands")
_READ = statement(__package__, "read_command")
TIMELINE_MAX = 1000
COMMAND_ID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
StatusQuery = Annotated[str | None, Query(alias="status", pattern="^[a-z_]{1,32}$")]
TextQuery = Annotated[str | None, Query(min_length=2, max_length=200, pattern=NO_NULL)]
CommandIdQuery = Annotated[str | None, Query(pattern=COMMAND_ID)]
log = get_logger("onsale.orders")
_CLAIM_BATCH = statement(__package__, "claim_batch")
_FIND_NEXT_ORDERS = statement(__package__, "find_next_orders")
_PROGRESS = statement(__package__, "event_refund_progress")
_PENDING = text("SELECT 1 FROM orders.\"order\" WHERE event_id = :event_id AND status = 'pending' LIMIT 1")
EVERY_S = 0.5
BATCH_MAX = 100
router = APIRouter(prefix="/admin/orders", tags=["admin"])
event_refunds = APIRouter(prefix="/admin/orders/events/{event_id}/refund", tags=["admin"])


class DecisionNotAllowed(Problem, status=409):
    """This decision is not allowed for the order."""


class UnknownCommand(Problem, status=404):
    """There is no command with this id."""


class NotReplayable(Problem, status=409):
    """Replaying this command would change nothing."""


@router.get("", operation_id="search_orders", summary="Search orders")
async def search(
    request: Request, state: OrdersState, operator: AnOperator, event_id: EventId | None = None,
    status: StatusQuery = None, q: TextQuery = None, since: AwareDatetime | None = None,
    until: AwareDatetime | None = None, mail_failed: bool = False, before: ReferenceQuery = None,
    page_size: PageSizeQuery = 50,
) -> OrderPage:  # fmt: skip
    """Newest first. `q` matches names, of buyers and on tickets, in part; references, e-mail addresses, seats and
    charges exactly. `mail_failed` finds those whose buyer could not be mailed.
    """
    page = PageRequest(request.url, before, page_size)
    bound = {
        "q": q and tidy(q), "event_id": event_id, "status": status, "since": since, "until": until,
        "mail_failed": mail_failed, "providers": list(state.providers), "before": before, "count_max": page_size + 1,
    }  # fmt: skip
    async with state.db.connect() as connection:
        references = list((await connection.execute(_SEARCH, bound)).scalars())
    shown, following = page.cut(references, str)
    orders = await read_many(state.db, shown)
    return OrderPage(orders=[admin_view(orders[r]) for r in shown if r in orders], next=following)


@router.get("/{reference}/timeline", operation_id="read_timeline", summary="Get the timeline of an order")
async def get_timeline(reference: ReferencePath, state: OrdersState, operator: AnOperator) -> Timeline:
    order, bound = await state.store.require(reference), {"reference": reference, "count_max": TIMELINE_MAX}
    async with state.db.connect() as connection:
        rows = list(await connection.execute(_TIMELINE, bound))
    entries = [TimelineEntry(at=rfc3339(from_datetime(row.at)), kind=row.kind, **row.what) for row in rows]
    return Timeline(order=admin_view(order), timeline=entries, complete=len(rows) < TIMELINE_MAX)


@router.post("/{reference}/retry", status_code=202, operation_id="retry_order", summary="Retry an order now")
async def retry(reference: ReferencePath, body: Reason, state: OrdersState, operator: AnOperator) -> AdminOrder:
    return await act(state, reference, actor_of(operator, body), _retry)


async def _retry(store: OrderStore, target: Order, actor: Actor) -> None:
    """Makes the order due now, syncs with its provider, applies its webhooks again and resets its error count."""

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        unapplied = (webhook_inbox.c.reference == order.reference) & webhook_inbox.c.applied_at.is_(None)
        await connection.execute(update(webhook_inbox).where(unapplied).values(due_at=func.clock_timestamp()))
        mine = open_order.c.reference == order.reference
        await connection.execute(update(open_order).where(mine).values(errors=0))
        await record(connection, "retry", actor, order)
        return OrderUpdate(order, bumps_version=False)

    await store.change(target.reference, decide, sync=True)


@router.post(
    "/{reference}/resolve", status_code=202, operation_id="resolve_order", summary="Resolve an order in review"
)
async def resolve(
    reference: ReferencePath, body: ResolveRequest, state: OrdersState, operator: AnOperator
) -> AdminOrder:
    resolve_so = partial(_resolve, decision=body.decision, return_to_sale=body.return_to_sale)
    return await act(state, reference, actor_of(operator, body), resolve_so)


async def _resolve(store: OrderStore, order: Order, actor: Actor, *, decision: Decision, return_to_sale: bool) -> None:
    """Records the decision about an order in review, which the order's process executes. Of two at once one is made.
    Raises `DecisionNotAllowed`.

    A sale is kept, or what is left of its money is refunded and its tickets are void. An order that was never sold is
    confirmed on money that matches exactly, or fully refunded, or expired if there is no money.
    """
    if decision == "refund" and order.was_sold:
        _require_allowed(order, decision)
        request = RefundRequest(
            selection=RefundSelection(), actor=actor, return_to_sale=return_to_sale, in_review=True
        )  # fmt: skip
        await request_refund(store, order.reference, request)
        return

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        _require_allowed(order, decision)
        await record(connection, "resolve", actor, order, decision=decision, why_in_review=order.end_reason)
        return OrderUpdate(order, bumps_version=False).set_order(review_decision=decision)

    await store.change(order.reference, decide)


def _require_allowed(order: Order, decision: Decision) -> None:
    if decision not in (allowed := allowed_decisions(order)):
        choices = f"Allowed decisions: {', '.join(sorted(allowed))}." if allowed else "The order is not in review."
        raise DecisionNotAllowed(choices)


@router.post("/{reference}/names", operation_id="rename_tickets", summary="Change the names on tickets")
async def rename(reference: ReferencePath, body: RenameRequest, state: OrdersState, operator: AnOperator) -> AdminOrder:
    """Also when the buyer may not any more; of a void ticket never."""
    wanted = NamesChange(names=body.names, name=body.name)

    async def rename_so(store: OrderStore, order: Order, actor: Actor) -> None:
        show = await read_show(store.db, order.event_id)
        await change_names(store, order, show, wanted, operator=actor)

    return await act(state, reference, actor_of(operator, body), rename_so)


@router.get("/commands", operation_id="list_commands", summary="List commands")
async def list_commands(
    request: Request, state: OrdersState, operator: Viewer, status: CommandStatus | None = None,
    reference: ReferenceQuery = None, event_id: EventId | None = None, before: CommandIdQuery = None,
    page_size: PageSizeQuery = 50,
) -> CommandPage:  # fmt: skip
    """Newest first."""
    after, place = place_of(before) if before else (None, 0)
    bound = {"status": status, "reference": reference, "event_id": event_id, "before": after, "place": place}
    async with state.db.connect() as connection:
        rows = (await connection.execute(_LIST, bound | {"count_max": page_size + 1})).mappings().all()
    shown, following = PageRequest(request.url, before, page_size).cut(rows, lambda row: str(row["command_id"]))
    return CommandPage(commands=[Command.model_validate({**row}) for row in shown], next=following)


@router.post("/commands/{command_id}/rerun", status_code=202, operation_id="replay_command", summary="Replay a command")
async def replay(
    operator: AnOperator, wanted: Annotated[str, Path(alias="command_id", pattern=COMMAND_ID)], body: Reason,
    state: OrdersState,
) -> Command:  # fmt: skip
    reference, place = place_of(wanted)
    await _read(state.db, reference, place)
    replays: list[int] = []

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        """Begins a replay; while one is open, that is the answer again."""
        command = order.journal[place - 1]
        _require_replayable(command, order)
        update = OrderUpdate(order, bumps_version=False)
        replays_of = ((n, one) for n, one in enumerate(order.journal, start=1) if REPLAY_OF in (one.payload or {}))
        open_one = next((n for n, one in replays_of if one.is_open and one.type == command.type), None)
        if open_one is None:
            payload = {REPLAY_OF: wanted, "reason": body.reason}
            update.begin_command(command.type, caused_by=f"operator:{operator.name}", payload=payload)
            open_one = len(update.now("journal"))
            await audit_log.write(
                connection, "rerun", Actor(operator.name, body.reason), subject=f"order:{reference}",
                before={"command_id": wanted, "status": command.status, "error": command.error},
                after={"command_id": command_id(reference, open_one), "status": "processing"},
            )  # fmt: skip
        replays.append(open_one)
        return update

    await state.store.change(reference, decide, sync=True)
    return await _read(state.db, reference, replays[-1])


async def _read(db: AsyncEngine, reference: str, place: int) -> Command:
    """Raises `UnknownCommand`."""
    async with db.connect() as connection:
        row = (await connection.execute(_READ, {"reference": reference, "place": place})).mappings().first()
    if row is None:
        raise UnknownCommand
    return Command.model_validate({**row})


def _require_replayable(command: Entry, order: Order) -> None:
    """Raises `NotReplayable`."""
    if command.status == "completed":
        raise NotReplayable("This command has completed.", command_status=command.status)
    if command.type == "cancel" and order.status != "pending":
        raise NotReplayable(f"An order that is {order.status} cannot be cancelled.", order_status=order.status)
    if command.type == "refund":
        if not order.refunds:
            detail = "No refund of this order is in progress; one that was rejected is decided in review."
            raise NotReplayable(detail, order_status=order.status)
        return
    if order.status != "pending" and not order.attempts:
        raise NotReplayable(
            "The order has ended, and no provider was ever asked to charge it.", order_status=order.status
        )


class NoEventRefund(Problem, status=404):
    """No refund of this event was requested."""


class EventRefundFinished(Problem, status=409):
    """The refund of this event has finished."""


@event_refunds.post(
    "",
    status_code=202,
    operation_id="start_event_refund",
    openapi_extra=control("refund_event"),
    summary="Refund an event",
)
async def start(
    event_id: EventIdPath, body: EventRefundRequest, state: OrdersState, operator: AnOperator
) -> EventRefundProgress:
    """Requested again while it runs, it only answers its progress."""
    actor, at = actor_of(operator, body), {"rate_per_s": body.rate_per_s}
    row = {"event_id": event_id, "status": "running", **at, "return_to_sale": body.return_to_sale}
    row |= {"reason": actor.reason, "requested_by": actor.name, "role": actor.role}
    async with state.db.begin() as connection:
        if (await connection.execute(insert(event_refund).values(row).on_conflict_do_nothing())).rowcount:
            await audit_log.write(
                connection, "refund-event", actor, subject=of_event(event_id), before={"status": "none"},
                after={**at, "to_sale": body.return_to_sale},
            )  # fmt: skip
    wake("orders")
    return await _progress(state.db, event_id)


@event_refunds.get("", operation_id="read_event_refund", summary="Get the progress of an event refund")
async def get(event_id: EventIdPath, state: OrdersState, operator: Viewer) -> EventRefundProgress:
    return await _progress(state.db, event_id)


@event_refunds.post("/pause", operation_id="pause_event_refund", summary="Pause the event refund")
async def pause(event_id: EventIdPath, body: Reason, state: OrdersState, operator: AnOperator) -> EventRefundProgress:
    return await _change(state.db, event_id, actor_of(operator, body), status="paused")


@event_refunds.post("/resume", operation_id="resume_event_refund", summary="Resume the event refund")
async def resume(
    event_id: EventIdPath, body: EventRefundResume, state: OrdersState, operator: AnOperator
) -> EventRefundProgress:
    rate = {"rate_per_s": body.rate_per_s} if body.rate_per_s else {}
    return await _change(state.db, event_id, actor_of(operator, body), status="running", **rate)


async def request_next_batch(store: OrderStore) -> int | Quiet:
    """Requests the next batch and returns how many orders it had; several processes may run it in a loop, which is
    quiet while no event is refunded.
    """
    async with store.begin() as connection:
        job = (await connection.execute(_CLAIM_BATCH, {"batch_max": BATCH_MAX})).first()
        if job is None:
            return Quiet()
        if not job.n:
            return 0
        bound = {"event_id": job.event_id, "after": job.after_reference, "count_max": job.n}
        page = list((await connection.execute(_FIND_NEXT_ORDERS, bound)).scalars())
        woken = await wake_in(connection, page, owner=store.owner)  # locks all of them, in key order
        orders = await read_in(connection, page)
        outcomes = [await _refund_or_cancel(connection, job, orders[reference]) for reference in sorted(page)]
        sets: dict[str, Any] = {
            "refunds": event_refund.c.refunds + outcomes.count("refund"),
            "cancelled": event_refund.c.cancelled + outcomes.count("cancel"),
            "after_reference": page[-1] if page else None,
        }
        whole_pass = not page and job.after_reference is None
        if whole_pass and await connection.scalar(_PENDING, {"event_id": job.event_id}) is None:
            sets |= {"status": "done", "ended_at": func.clock_timestamp()}
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))
    await store.tell(woken)
    return len(page)


async def _refund_or_cancel(connection: AsyncConnection, job: Row[Any], each: Order) -> str | None:
    """What was requested, `refund` or `cancel`; None if the order had nothing left to refund."""
    actor = Actor(name=job.requested_by, role=job.role, reason=job.reason)
    request = RefundRequest(selection=RefundSelection(), actor=actor, return_to_sale=job.return_to_sale)
    is_pending = each.status == "pending"
    try:
        update = cancellation(each, "operator") if is_pending else await refund_in(connection, each, request)
    except (RefundRefused, OrderNotPending) as refused:
        log.info("event_refund.order_skipped", reference=each.reference, reason=str(refused))
        return None
    await save_in(connection, update)
    return "cancel" if is_pending else "refund"


async def _change(db: AsyncEngine, event_id: str, actor: Actor, **sets: Any) -> EventRefundProgress:
    """Raises `NoEventRefund`, `EventRefundFinished`."""
    latest = select(event_refund.c.id, event_refund.c.status).where(event_refund.c.event_id == event_id)
    latest = latest.order_by(event_refund.c.id.desc()).limit(1).with_for_update()
    async with db.begin() as connection:
        job = (await connection.execute(latest)).first()
        if job is None:
            raise NoEventRefund
        if job.status == "done":
            raise EventRefundFinished
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))
        await audit_log.write(
            connection, "steer-refund-event", actor, subject=of_event(event_id), before={"status": job.status},
            after=sets,
        )  # fmt: skip
    wake("orders")
    return await _progress(db, event_id)


async def _progress(db: AsyncEngine, event_id: str) -> EventRefundProgress:
    """The latest refund of the event, with its orders and refunds by status. Raises `NoEventRefund`."""
    async with db.connect() as connection:
        row = (await connection.execute(_PROGRESS, {"event_id": event_id})).mappings().first()
    if row is None:
        raise NoEventRefund
    times = {name: row[name] and rfc3339(from_datetime(row[name])) for name in ("started_at", "ended_at")}
    return EventRefundProgress.model_validate({**row, **times})
