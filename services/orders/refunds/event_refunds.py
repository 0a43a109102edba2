"""The refund of a whole event: its row says how far it is, so it goes on after a restart, in whichever process.

Each turn asks for as many refunds as the pace allows, in one transaction with the row's progress: no order is asked for
twice, and none is passed over. Orders that wait to be paid are cancelled. It is done when a pass from the first order
to the last finds nothing to do and nothing that may still be paid.
"""

import logging
from typing import Any

from sqlalchemy import Row, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.admin.manual_actions import Actor, note
from services.orders.payments.retry_payment import request_cancel_in
from services.orders.problems import EventRefundFinished, NoEventRefund, OrderNotPending, RefundRefused
from services.orders.refunds.plan import RefundSelection
from services.orders.refunds.request import RefundRequest, request_refund_in
from services.orders.refunds.tables import event_refund
from services.orders.tables import order
from services.orders.tables import refund as refund_table
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.runtime.clock import from_datetime, rfc3339
from shared.runtime.logging import data

log = logging.getLogger("onsale.orders")
_PACE = statement(__package__, "pace")
_STANDING = statement(__package__, "standing")
_PENDING = text("SELECT 1 FROM orders.\"order\" WHERE event_id = :event_id AND status = 'pending' LIMIT 1")
TURN_S = 0.5
TURN_MAX = 100


class EventRefunds:
    """One turn of a loop; several may run."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db

    async def turn(self) -> int:
        """How many orders were asked for."""
        async with self._db.begin() as connection:
            job = (await connection.execute(_PACE, {"most": TURN_MAX})).first()
            if job is None or not job.n:
                return 0
            asked = {"event_id": job.event_id, "after": job.after_reference, "count_max": job.n}
            page = list(await connection.execute(_STANDING, asked))
            in_key_order = sorted(page, key=lambda each: each.reference)  # as everybody locks who locks several
            refunds = sum([await self._ask(connection, job, each) for each in in_key_order])
            await self._progress(connection, job, page, refunds)
        return len(page)

    async def _ask(self, connection: AsyncConnection, job: Row[Any], each: Row[Any]) -> bool:
        """Whether its money goes back; else it was cancelled, or needed nothing any more."""
        by = Actor(name=job.asked_by, role=job.role, reason=job.reason)
        try:
            async with connection.begin_nested():
                if each.status == "pending":
                    await request_cancel_in(connection, each.reference, "operator")
                    return False
                await request_refund_in(
                    connection, each.reference, RefundRequest(wish=RefundSelection(), by=by, to_sale=job.to_sale)
                )
                return True
        except (RefundRefused, OrderNotPending) as refused:
            log.info("event_refund.refused", extra=data(reference=each.reference, reason=str(refused)))
            return False

    async def _progress(self, connection: AsyncConnection, job: Row[Any], page: list[Row[Any]], refunds: int) -> None:
        sets: dict[str, Any] = {
            "refunds": event_refund.c.refunds + refunds,
            "cancelled": event_refund.c.cancelled + sum(each.status == "pending" for each in page),
            "after_reference": page[-1].reference if page else None,
        }
        whole_pass = not page and job.after_reference is None
        if whole_pass and await connection.scalar(_PENDING, {"event_id": job.event_id}) is None:
            sets |= {"status": "done", "ended_at": func.clock_timestamp()}
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))


async def start(db: AsyncEngine, event_id: str, by: Actor, *, rate_per_s: float, to_sale: bool) -> None:
    """Begins, unless one of this event has begun and is not done."""
    row = {"event_id": event_id, "status": "running", "rate_per_s": rate_per_s, "to_sale": to_sale}
    row |= {"reason": by.reason, "asked_by": by.name, "role": by.role}
    async with db.begin() as connection:
        if (await connection.execute(insert(event_refund).values(row).on_conflict_do_nothing())).rowcount:
            await note(
                connection, "refund-event", by, event_id=event_id, before="none", rate_per_s=rate_per_s, to_sale=to_sale
            )


async def steer(db: AsyncEngine, event_id: str, by: Actor, *, status: str, rate_per_s: float | None = None) -> None:
    """`running` or `paused`, and perhaps another rate. Raises `NoEventRefund`, `EventRefundFinished`."""
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
        await note(connection, "steer-refund-event", by, event_id=event_id, before=job.status, **sets)


async def progress(db: AsyncEngine, event_id: str) -> dict[str, Any]:
    """The latest one, and how the event's orders and refunds stand. Raises `NoEventRefund`."""
    latest = select(event_refund).where(event_refund.c.event_id == event_id).order_by(event_refund.c.id.desc()).limit(1)
    of_event = refund_table.join(order, order.c.reference == refund_table.c.reference)
    sums = select(refund_table.c.status, func.count().label("n"), func.sum(refund_table.c.amount_minor).label("minor"))
    sums = sums.select_from(of_event).where(order.c.event_id == event_id).group_by(refund_table.c.status)
    statuses = select(order.c.status, func.count().label("n")).where(order.c.event_id == event_id)
    async with db.connect() as connection:
        job = (await connection.execute(latest)).first()
        if job is None:
            raise NoEventRefund
        summed = await connection.execute(sums)
        refunds = {row.status: {"count": row.n, "amount_minor": int(row.minor)} for row in summed}
        orders = {row.status: row.n for row in await connection.execute(statuses.group_by(order.c.status))}
    return {
        "event_id": event_id, "status": job.status, "rate_per_s": job.rate_per_s, "return_to_sale": job.to_sale,
        "reason": job.reason, "asked_by": job.asked_by, "asked": job.refunds, "cancelled": job.cancelled,
        "started_at": rfc3339(from_datetime(job.started_at)),
        "ended_at": rfc3339(from_datetime(job.ended_at)) if job.ended_at else None,
        "refunds": refunds, "orders": orders,
    }  # fmt: skip
