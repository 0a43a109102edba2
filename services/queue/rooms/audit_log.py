"""The audit trail of a room: written in the transaction of what it tells, read newest first, a page at a time."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select

from services.queue.admin.schemas import Change
from services.queue.rooms.model import WaitingRoom
from services.queue.tables import room_change
from shared.postgres.engine import AsyncConnection, AsyncEngine


async def record(
    connection: AsyncConnection, room: WaitingRoom, *, actor: str, action: str, reason: str | None,
    before: Mapping[str, Any] | None = None, after: Mapping[str, Any],
) -> None:  # fmt: skip
    """One line of the trail, under the room's version."""
    await connection.execute(
        insert(room_change).values(
            event_id=room.event_id, actor=actor, action=action, reason=reason, version=room.version, before=before,
            after=after,
        )
    )  # fmt: skip


async def changes(db: AsyncEngine, event_id: str, *, before: int | None, count: int) -> list[Change]:
    """At most `count` changes, those older than the change `before` if it is given."""
    query = select(room_change).where(room_change.c.event_id == event_id)
    if before is not None:
        query = query.where(room_change.c.id < before)
    async with db.connect() as connection:
        rows = await connection.execute(query.order_by(room_change.c.id.desc()).limit(count))
        return [Change.model_validate(dict(row)) for row in rows.mappings()]
