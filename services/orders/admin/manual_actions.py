"""The operators' desk: who did what to which order, when and why, in the transaction that did it."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from services.orders.audit import audit_log
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.payments.retry_payment import request_cancel
from services.orders.processing.job_queue import EnqueueFailed
from services.orders.state import State
from services.orders.tables import order, webhook_inbox
from shared.postgres.engine import AsyncConnection
from shared.security.auth import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts, in which role, and why."""

    name: str
    role: str
    reason: str

    @classmethod
    def operator(cls, operator: Operator, reason: str) -> "Actor":
        return cls(name=operator.name, role=operator.role, reason=reason)


async def note(
    connection: AsyncConnection, action: str, by: Actor, *, event_id: str, reference: str | None = None, before: str,
    **details: Any,
) -> None:  # fmt: skip
    """Into the audit trail: of the order, or of the whole event."""
    subject = f"order:{reference}" if reference else f"event:{event_id}"
    await audit_log.write(
        connection, actor=by.name, role=by.role, action=action, subject=subject, reason=by.reason,
        before={"status": before}, after=details,
    )  # fmt: skip


async def retry(state: State, seen: Order, by: Actor) -> None:
    """Due now, its provider asked again, its webhooks applied again; whatever failed before counts no more."""
    for with_job in (True, False):
        try:
            async with state.db.begin() as connection:
                before = (await leases.mark_due(connection, seen.reference)).status
                again = update(order).where(order.c.reference == seen.reference).values(sync_requested=True, errors=0)
                await connection.execute(again)
                kept = update(webhook_inbox).where(webhook_inbox.c.reference == seen.reference)
                await connection.execute(kept.where(webhook_inbox.c.applied_at.is_(None)).values(due_at=leases.NOW))
                await note(
                    connection, "retry", by, event_id=seen.event_id, reference=seen.reference, before=before
                )  # fmt: skip
                if with_job:
                    await state.jobs.enqueue(connection, seen.reference)
            return
        except EnqueueFailed:
            continue


async def cancel(state: State, seen: Order, by: Actor) -> None:
    """An unpaid order, as its fan could. Raises `OrderNotPending`."""
    await request_cancel(state.db, state.jobs, seen, reason="operator")
    async with state.db.begin() as connection:
        await note(connection, "cancel", by, event_id=seen.event_id, reference=seen.reference, before=seen.status)
