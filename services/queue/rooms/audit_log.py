"""The audit log of a room: each entry has the room's version, and the configuration before and after."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from services.queue.rooms.model import WaitingRoom
from services.queue.tables import audit_log as table
from shared import audit_log
from shared.errors.problems import Problem
from shared.postgres.engine import AsyncConnection


class RequestedBy(NamedTuple):
    """Who requests a change and why. `version` is the one they read: a room with another one is not changed.
    `may_not_redirect` is raised if the change would send visitors or their passes to another site.
    """

    actor: str
    reason: str | None = None
    version: int | None = None
    may_not_redirect: Problem | None = None


async def record(
    connection: AsyncConnection, room: WaitingRoom, action: str, by: RequestedBy, *,
    before: Mapping[str, Any] | None = None, after: Mapping[str, Any],
) -> None:  # fmt: skip
    """Writes one entry."""
    await audit_log.write(
        connection, table, subject=subject(room.event_id), actor=by.actor, action=action, reason=by.reason,
        version=room.version, before=before, after=after,
    )  # fmt: skip


def subject(event_id: str) -> str:
    """What the entries of this event's room are about."""
    return f"event:{event_id}"
