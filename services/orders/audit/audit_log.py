"""The audit log of orders: who did what to an order or an event, when, why, and its state before and after.

An entry is written in the transaction of the change it records.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from services.orders.audit.tables import audit_log as table
from shared import audit_log
from shared.postgres.engine import AsyncConnection
from shared.security.auth import Operator

write = partial(audit_log.write, table=table)


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
