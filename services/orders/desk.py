"""The operators' desk: who did what to which order, when and why, in the transaction that did it."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from services.orders import ledger, trail
from services.orders.jobs import JobNotAccepted
from services.orders.payments_again import cancel_order
from services.orders.room import Room
from services.orders.steps import Order
from services.orders.tables import order, webhook_inbox
from shared.auth import Operator
from shared.postgres import AsyncConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who acts, in which role, and why."""

    name: str
    role: str
    reason: str

    @classmethod
    def operator(cls, operator: Operator, reason: str) -> "By":
        return cls(name=operator.name, role=operator.role, reason=reason)


async def note(
    connection: AsyncConnection, action: str, by: By, *, event_id: str, reference: str | None = None, before: str,
    **details: Any,
) -> None:  # fmt: skip
    """Into the audit trail: of the order, or of the whole event."""
    subject = f"order:{reference}" if reference else f"event:{event_id}"
    await trail.note(
        connection, actor=by.name, role=by.role, action=action, subject=subject, reason=by.reason,
        before={"status": before}, after=details,
    )  # fmt: skip


async def retry(room: Room, seen: Order, by: By) -> None:
    """Due now, its provider asked again, its webhooks applied again; whatever failed before counts no more."""
    for with_job in (True, False):
        try:
            async with room.engine.begin() as connection:
                before = (await ledger.nudge(connection, seen.reference)).status
                again = update(order).where(order.c.reference == seen.reference).values(hinted=True, errors=0)
                await connection.execute(again)
                kept = update(webhook_inbox).where(webhook_inbox.c.reference == seen.reference)
                await connection.execute(kept.where(webhook_inbox.c.applied_at.is_(None)).values(due_at=ledger.NOW))
                await note(
                    connection, "retry", by, event_id=seen.event_id, reference=seen.reference, before=before
                )  # fmt: skip
                if with_job:
                    await room.jobs.wake_up(connection, seen.reference)
            return
        except JobNotAccepted:
            continue


async def cancel(room: Room, seen: Order, by: By) -> None:
    """An unpaid order, as its fan could. Raises `OrderEnded`."""
    await cancel_order(room.engine, room.jobs, seen, reason="operator")
    async with room.engine.begin() as connection:
        await note(connection, "cancel", by, event_id=seen.event_id, reference=seen.reference, before=seen.status)
