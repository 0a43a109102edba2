"""The audit log: who did what to an order or an event, when, why, and its state before and after.

An entry is written in the transaction of the change it records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from services.orders.audit.tables import operator_change
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


async def record(
    connection: AsyncConnection, action: str, actor: Actor, *, event_id: str, reference: str | None = None,
    before: str, **details: Any,
) -> None:  # fmt: skip
    """Writes what an actor did to an order, or to an event if there is no `reference`; `before` is its status."""
    await write(
        connection, actor=actor.name, role=actor.role, action=action, reason=actor.reason,
        subject=f"order:{reference}" if reference else f"event:{event_id}", before={"status": before}, after=details,
    )  # fmt: skip


async def write(
    connection: AsyncConnection, *, actor: str, action: str, subject: str, reason: str | None,
    role: str | None = None, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Writes one entry; `subject` is `event:…`, `order:…` or `webhook:…`."""
    entry = {"actor": actor, "role": role, "action": action, "subject": subject, "reason": reason}
    await connection.execute(insert(operator_change).values({**entry, "before": before, "after": after}))


async def read(connection: AsyncConnection, *, subject: str | None, page: int, page_size: int) -> list[dict[str, Any]]:
    """One page of entries, newest first; of one subject, if it is given."""
    entries = select(operator_change).order_by(operator_change.c.id.desc())
    if subject is not None:
        entries = entries.where(operator_change.c.subject == subject)
    rows = await connection.execute(entries.limit(page_size).offset((page - 1) * page_size))
    return [dict(row) for row in rows.mappings()]
