"""What operators do to one order by hand: retry it now, or cancel it unpaid.

Each action is written to the audit log with its actor and reason.
"""

from sqlalchemy import func, update

from services.orders.model.order import Order
from services.orders.model.update import OrderUpdate
from services.orders.requests.payment import request_cancel
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log, open_order, webhook_inbox
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection


async def retry(store: OrderStore, target: Order, actor: Actor) -> None:
    """Makes the order due now, syncs with its provider, applies its webhooks again and resets its error count."""

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        unapplied = (webhook_inbox.c.reference == order.reference) & webhook_inbox.c.applied_at.is_(None)
        await connection.execute(update(webhook_inbox).where(unapplied).values(due_at=func.clock_timestamp()))
        mine = open_order.c.reference == order.reference
        await connection.execute(update(open_order).where(mine).values(errors=0))
        await _record(connection, "retry", actor, order)
        return OrderUpdate(order, bumps_version=False)

    await store.change(target.reference, decide, sync=True)


async def cancel(store: OrderStore, target: Order, actor: Actor) -> None:
    """Cancels an unpaid order, as its buyer could. Raises `OrderNotPending`."""
    await request_cancel(store, target, reason="operator")
    async with store.begin() as connection:
        await _record(connection, "cancel", actor, target)


async def _record(connection: AsyncConnection, action: str, actor: Actor, target: Order) -> None:
    subject, before = f"order:{target.reference}", {"status": target.status}
    await audit_log.write(connection, action, actor, subject=subject, before=before, after={})
