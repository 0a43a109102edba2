"""The audit trail of what operators did to orders: who, when, what, to what, why, and how it was before and after."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select

from services.orders.audit.tables import operator_change
from shared.postgres.engine import AsyncConnection


async def write(
    connection: AsyncConnection, *, actor: str, action: str, subject: str, reason: str | None,
    role: str | None = None, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """One line, in the transaction of what it tells."""
    line = {"actor": actor, "role": role, "action": action, "subject": subject, "reason": reason}
    await connection.execute(insert(operator_change).values({**line, "before": before, "after": after}))


async def read(connection: AsyncConnection, *, subject: str | None, page: int, page_size: int) -> list[dict[str, Any]]:
    """The newest first; `subject` as `event:…`, `order:…` or `hook:…`."""
    lines = select(operator_change).order_by(operator_change.c.id.desc())
    if subject is not None:
        lines = lines.where(operator_change.c.subject == subject)
    rows = await connection.execute(lines.limit(page_size).offset((page - 1) * page_size))
    return [dict(row) for row in rows.mappings()]
