"""Invariant 4, over the life of a line: no more calls than the bursts, the rate over time and the admits by hand allow.

The audit trail knows every rate and when it held, so the bound is an integral over its rows. Both sides are rounded in
favour of the line by a second at each change, as the engine learns a change a moment after the ledger.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text

from services.queue.room import Room
from shared.postgres import AsyncConnection
from shared.rollout import outside

SLACK_S = 1.0
LATE_TICK_S = 0.4  # what the bucket may hold beyond the burst
CALLING = frozenset({"open", "draining"})
CALLS = text("SELECT count(*) FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch")
CALLERS = text(
    "SELECT p.holder FROM queue.admission a LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq) "
    "WHERE a.event_id = :event_id AND a.epoch = :epoch"
)
TRAIL = text(
    "SELECT at, action, after FROM queue.room_change WHERE event_id = :event_id "
    "AND CAST(after ->> 'epoch' AS int) = :epoch ORDER BY id"
)
NOW = text("SELECT clock_timestamp()")


async def overcalled(
    connection: AsyncConnection, room: Room, *, lowest_rollout: float, clock_offset_ms: int
) -> list[str]:
    """How many calls there are beyond what was allowed; nothing when the promise holds. Calls of fans who were outside
    the rolled-out share at some time are not the line's.
    """
    which = {"event_id": room.event_id, "epoch": room.epoch}
    trail = (await connection.execute(TRAIL, which)).fetchall()
    if lowest_rollout < 100:
        callers = (await connection.execute(CALLERS, which)).scalars()
        calls = sum(not outside(room.event_id, holder or "", lowest_rollout) for holder in callers)
    else:
        calls = (await connection.execute(CALLS, which)).scalar_one()
    now = (await connection.execute(NOW)).scalar_one() + timedelta(milliseconds=clock_offset_ms)
    most = allowed([(row.at, row.action, row.after) for row in trail], now)
    return [f"{calls} calls, {most:.0f} allowed"] if calls > most + 1 else []


def allowed(trail: Sequence[tuple[datetime, str, dict[str, Any]]], until: datetime) -> float:
    """Calls allowed by (when, what, the room after it), oldest first."""
    most = 0.0
    for i, (at, action, after) in enumerate(trail):
        end = trail[i + 1][0] if i + 1 < len(trail) else until
        if action == "admit":
            most += after["admit"]
        if after["state"] in CALLING:
            held_s = (end - at).total_seconds() + SLACK_S
            most += after["rate_per_s"] * held_s
    bursts = [max(after["burst"], after["rate_per_s"] * LATE_TICK_S) for _, _, after in trail]
    return most + max(bursts, default=0.0)
