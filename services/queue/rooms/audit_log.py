"""The audit log of a room: written in the transaction of the change, read newest first, page by page."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select

from services.queue.rooms.model import WaitingRoom
from services.queue.tables import room_audit_log
from shared.contracts.admin.queue import RoomAuditEntry
from shared.postgres.engine import AsyncConnection, AsyncEngine


async def record(
    connection: AsyncConnection, room: WaitingRoom, *, actor: str, action: str, reason: str | None,
    before: Mapping[str, Any] | None = None, after: Mapping[str, Any],
) -> None:  # fmt: skip
    """Writes one entry, with the room's version."""
    await connection.execute(
        insert(room_audit_log).values(
            event_id=room.event_id, actor=actor, action=action, reason=reason, version=room.version, before=before,
            after=after,
        )
    )  # fmt: skip


async def list_entries(db: AsyncEngine, event_id: str, *, before: int | None, count: int) -> list[RoomAuditEntry]:
    """At most `count` entries, newest first; only those older than the entry `before` if it is given."""
    query = select(room_audit_log).where(room_audit_log.c.event_id == event_id)
    if before is not None:
        query = query.where(room_audit_log.c.id < before)
    async with db.connect() as connection:
        rows = await connection.execute(query.order_by(room_audit_log.c.id.desc()).limit(count))
        return [RoomAuditEntry.model_validate(dict(row)) for row in rows.mappings()]
