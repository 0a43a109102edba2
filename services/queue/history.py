"""The audit trail of a room, as it is read: newest first, a page at a time."""

from sqlalchemy import select

from services.queue.schemas import Change
from services.queue.tables import room_change
from shared.postgres import AsyncEngine


async def changes(engine: AsyncEngine, event_id: str, *, before: int | None, count: int) -> list[Change]:
    """At most `count` changes, those older than the change `before` if it is given."""
    query = select(room_change).where(room_change.c.event_id == event_id)
    if before is not None:
        query = query.where(room_change.c.id < before)
    async with engine.connect() as connection:
        rows = await connection.execute(query.order_by(room_change.c.id.desc()).limit(count))
        return [Change.model_validate(dict(row)) for row in rows.mappings()]
