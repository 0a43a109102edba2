"""Refunds a whole event, at a given rate. Its row holds all progress, so any process continues after a restart.

Each batch is requested in one transaction with the row's progress: no order is refunded twice and none is left out.
Orders that wait for payment are cancelled. The refund is done when a pass over all orders finds nothing to refund and
nothing that may still be paid.
"""

from typing import Any

from sqlalchemy import Row, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.model.order import Order
from services.orders.model.refund_plan import RefundSelection
from services.orders.problems import EventRefundFinished, NoEventRefund, OrderNotPending, RefundRefused
from services.orders.requests.payment import cancellation
from services.orders.requests.refund import RefundRequest, refund_in
from services.orders.store.store import OrderStore, read_in, save_in, wake_in
from services.orders.tables import audit_log, event_refund
from shared.audit_log import Actor, of_event
from shared.concurrency.background import Quiet, wake
from shared.contracts.admin.orders import EventRefundProgress
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.runtime.clock import from_datetime, rfc3339
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
_CLAIM_BATCH = statement(__package__, "claim_batch")
_FIND_NEXT_ORDERS = statement(__package__, "find_next_orders")
_PROGRESS = statement(__package__, "event_refund_progress")
_PENDING = text("SELECT 1 FROM orders.\"order\" WHERE event_id = :event_id AND status = 'pending' LIMIT 1")
INTERVAL_S = 0.5
BATCH_MAX = 100


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


async def start(
    db: AsyncEngine, event_id: str, actor: Actor, *, rate_per_s: float, return_to_sale: bool
) -> EventRefundProgress:
    """Starts a refund of this event, unless one is running or paused."""
    row = {"event_id": event_id, "status": "running", "rate_per_s": rate_per_s, "return_to_sale": return_to_sale}
    row |= {"reason": actor.reason, "requested_by": actor.name, "role": actor.role}
    async with db.begin() as connection:
        if (await connection.execute(insert(event_refund).values(row).on_conflict_do_nothing())).rowcount:
            await audit_log.write(
                connection, "refund-event", actor, subject=of_event(event_id), before={"status": "none"},
                after={"rate_per_s": rate_per_s, "to_sale": return_to_sale},
            )  # fmt: skip
    wake("orders")
    return await progress(db, event_id)


async def change_status(
    db: AsyncEngine, event_id: str, actor: Actor, *, status: str, rate_per_s: float | None = None
) -> EventRefundProgress:
    """Sets `running` or `paused`, and optionally another rate. Raises `NoEventRefund`, `EventRefundFinished`."""
    latest = select(event_refund.c.id, event_refund.c.status).where(event_refund.c.event_id == event_id)
    latest = latest.order_by(event_refund.c.id.desc()).limit(1).with_for_update()
    async with db.begin() as connection:
        job = (await connection.execute(latest)).first()
        if job is None:
            raise NoEventRefund
        if job.status == "done":
            raise EventRefundFinished
        sets: dict[str, Any] = {"status": status} | ({"rate_per_s": rate_per_s} if rate_per_s else {})
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))
        await audit_log.write(
            connection, "steer-refund-event", actor, subject=of_event(event_id), before={"status": job.status},
            after=sets,
        )  # fmt: skip
    wake("orders")
    return await progress(db, event_id)


async def progress(db: AsyncEngine, event_id: str) -> EventRefundProgress:
    """The latest refund of the event, with its orders and refunds by status. Raises `NoEventRefund`."""
    async with db.connect() as connection:
        row = (await connection.execute(_PROGRESS, {"event_id": event_id})).mappings().first()
    if row is None:
        raise NoEventRefund
    times = {name: row[name] and rfc3339(from_datetime(row[name])) for name in ("started_at", "ended_at")}
    return EventRefundProgress.model_validate({**row, **times})
