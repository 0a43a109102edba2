"""What operators do to one order by hand: retry it now, cancel it unpaid, or decide about it in review.

Each action is written to the audit log with its actor and reason.
"""

from typing import Any

from sqlalchemy import func, update

from services.orders.model.order import Order
from services.orders.model.refund_plan import Decision, RefundSelection, allowed_decisions
from services.orders.model.update import OrderUpdate
from services.orders.problems import DecisionNotAllowed
from services.orders.requests.payment import request_cancel
from services.orders.requests.refund import RefundRequest, request_refund
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


async def resolve_review(
    store: OrderStore, order: Order, actor: Actor, *, decision: Decision, return_to_sale: bool
) -> None:
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
        await _record(connection, "resolve", actor, order, decision=decision, why_in_review=order.end_reason)
        return OrderUpdate(order, bumps_version=False).set_order(review_decision=decision)

    await store.change(order.reference, decide)


def _require_allowed(order: Order, decision: Decision) -> None:
    if decision not in (allowed := allowed_decisions(order)):
        choices = f"Allowed decisions: {', '.join(sorted(allowed))}." if allowed else "The order is not in review."
        raise DecisionNotAllowed(choices)


async def _record(connection: AsyncConnection, action: str, actor: Actor, target: Order, **after: Any) -> None:
    subject, before = f"order:{target.reference}", {"status": target.status}
    await audit_log.write(connection, action, actor, subject=subject, before=before, after=after)
