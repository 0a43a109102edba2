"""Invariant 4, over the life of a line: no more calls than the bursts, the rate over time and the admits by hand allow.

The audit trail knows every rate and when it held, so the bound is an integral over its rows. Both sides are rounded in
favour of the line by a second at each change, as the engine learns a change a moment after the ledger.

The same is asked of the time after each change: from then on calls come out of what the bucket may still have held and
the rates that followed. A lower rate cuts what was saved in proportion; after a rate of 0 nothing is left of it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from sqlalchemy import text

from services.queue.room import Room
from shared.clock import from_datetime
from shared.postgres import AsyncConnection
from shared.rollout import outside

SLACK_S = 1.0
LATE_TICK_S = 0.4  # what the bucket may hold beyond the burst
CALLING = frozenset({"open", "draining"})
Trail = Sequence[tuple[datetime, str, dict[str, Any]]]
CALLS = text("""
    SELECT width_bucket(coalesce(deadline_ms, 0), CAST(:bounds AS bigint[])) AS bucket, count(*) AS calls
    FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch GROUP BY 1""")
CALLERS = text("""
    SELECT p.holder, coalesce(a.deadline_ms, 0) AS deadline_ms
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
    LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)""")
TRAIL = text(
    "SELECT at, action, after FROM queue.room_change WHERE event_id = :event_id "
    "AND CAST(after ->> 'epoch' AS int) = :epoch ORDER BY id"
)
NOW = text("SELECT clock_timestamp()")


async def overcalled(
    connection: AsyncConnection, room: Room, *, lowest_rollout: float, clock_offset_ms: int
) -> list[str]:
    """How many calls there are beyond what was allowed, in all and since each change; nothing when the promise holds.
    Calls of fans who were outside the rolled-out share at some time are not the line's.
    """
    which = {"event_id": room.event_id, "epoch": room.epoch}
    trail = [(row.at, row.action, row.after) for row in await connection.execute(TRAIL, which)]
    now = (await connection.execute(NOW)).scalar_one() + timedelta(milliseconds=clock_offset_ms)
    bounds = _surely_after(trail, clock_offset_ms)
    counts = [0] * (len(bounds) + 1)  # calls between one bound and the next
    if lowest_rollout < 100:
        for call in await connection.execute(CALLERS, which):
            if not outside(room.event_id, call.holder or "", lowest_rollout):
                counts[bisect_right(bounds, call.deadline_ms)] += 1
    else:
        for row in await connection.execute(CALLS, {**which, "bounds": bounds}):
            counts[row.bucket] += row.calls
    calls, most = sum(counts), allowed(trail, now)
    broken = [f"{calls} calls, {most:.0f} allowed"] if calls > most + 1 else []
    since = list(accumulate(reversed(counts)))[::-1][1:]
    for (at, _, _), made, may in zip(trail, since, allowed_since(trail, now), strict=True):
        if made > may + 1:
            broken.append(f"{made} calls since the change of {at:%Y-%m-%d %H:%M:%S}, {may:.0f} allowed")
    return broken


def _surely_after(trail: Trail, clock_offset_ms: int) -> list[int]:
    """Per change the claim deadline from which on a call was surely made after it, rising."""
    window_ms = 1000 * max((after["claim_window_s"] for _, _, after in trail), default=0)
    slack_ms = round(SLACK_S * 1000) + clock_offset_ms + window_ms
    return list(accumulate((from_datetime(at) + slack_ms for at, _, _ in trail), max))


def allowed(trail: Trail, until: datetime) -> float:
    """Calls allowed by (when, what, the room after it), oldest first."""
    return sum(_per_change(trail, until)) + max((_cap(after) for _, _, after in trail), default=0.0)


def allowed_since(trail: Trail, until: datetime) -> list[float]:
    """Per change, calls allowed from then on: what was saved until then and what came since."""
    given = list(accumulate(reversed(_per_change(trail, until))))[::-1]
    saved, kept = [], 0.0
    for i, (at, _, after) in enumerate(trail):
        if i:
            before_at, _, before = trail[i - 1]
            if before["state"] in CALLING:
                kept = min(_cap(before), kept + before["rate_per_s"] * ((at - before_at).total_seconds() + SLACK_S))
            if after["rate_per_s"] < before["rate_per_s"]:
                kept *= after["rate_per_s"] / before["rate_per_s"]
        kept = min(kept, _cap(after)) if after["state"] in CALLING and after["rate_per_s"] > 0 else 0.0
        saved.append(kept)
    return [more + kept for more, kept in zip(given, saved, strict=True)]


def _per_change(trail: Trail, until: datetime) -> list[float]:
    """What each change allowed while it held: its rate over that time, and whom it admitted by hand."""
    ends = [at for at, _, _ in trail[1:]] + [until]
    return [
        (after["admit"] if action == "admit" else 0.0)
        + (after["rate_per_s"] * ((end - at).total_seconds() + SLACK_S) if after["state"] in CALLING else 0.0)
        for (at, action, after), end in zip(trail, ends, strict=False)
    ]


def _cap(after: dict[str, Any]) -> float:
    return float(max(after["burst"], after["rate_per_s"] * LATE_TICK_S))
