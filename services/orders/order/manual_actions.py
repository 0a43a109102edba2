"""What operators do to one order by hand: retry it now, or cancel it unpaid.

Each action is written to the audit log with its actor and reason. A job is queued with it if the job queue accepts one;
otherwise the workers find the order by its due time.
"""

from sqlalchemy import update

from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.payments.retry_payment import request_cancel
from services.orders.processing.job_queue import JobQueue
from services.orders.tables import audit_log, order, webhook_inbox
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection, AsyncEngine


async def retry(db: AsyncEngine, jobs: JobQueue, target: Order, actor: Actor) -> None:
    """Makes the order due now, syncs with its provider, applies its webhooks again and resets its error count."""

    async def write(connection: AsyncConnection) -> bool:
        before = (await leases.mark_due(connection, target.reference)).status
        mine = order.c.reference == target.reference
        await connection.execute(update(order).where(mine).values(sync_requested=True, errors=0))
        unapplied = (webhook_inbox.c.reference == target.reference) & webhook_inbox.c.applied_at.is_(None)
        await connection.execute(update(webhook_inbox).where(unapplied).values(due_at=leases.NOW))
        await _record(connection, "retry", actor, target, before)
        return True

    await jobs.commit_with_job(db, target.reference, write)


async def cancel(db: AsyncEngine, jobs: JobQueue, target: Order, actor: Actor) -> None:
    """Cancels an unpaid order, as its buyer could. Raises `OrderNotPending`."""
    await request_cancel(db, jobs, target, reason="operator")
    async with db.begin() as connection:
        await _record(connection, "cancel", actor, target, target.status)


async def _record(connection: AsyncConnection, action: str, actor: Actor, target: Order, status: str) -> None:
    subject = f"order:{target.reference}"
    await audit_log.write(connection, action, actor, subject=subject, before={"status": status}, after={})
