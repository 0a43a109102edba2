"""The audit log of a room: each entry has the room's version, and the configuration before and after."""

from collections.abc import Mapping
from typing import Any

from services.queue.rooms.model import WaitingRoom
from services.queue.tables import audit_log as table
from shared.postgres import audit_log
from shared.postgres.engine import AsyncConnection


async def record(
    connection: AsyncConnection, room: WaitingRoom, *, actor: str, action: str, reason: str | None,
    before: Mapping[str, Any] | None = None, after: Mapping[str, Any],
) -> None:  # fmt: skip
    """Writes one entry."""
    await audit_log.write(
        connection, table, subject=subject(room.event_id), actor=actor, action=action, reason=reason,
        version=room.version, before=before, after=after,
    )  # fmt: skip


def subject(event_id: str) -> str:
    """What the entries of this event's room are about."""
    return f"event:{event_id}"
