"""The promises about the line (invariants 3 to 5), each as a question to ledger and engine that must find nothing.

Invariant 4, over the life of a line: no more calls than the bursts, the rate over time and the admits by hand allow.

The audit trail knows every rate and when it held, so the bound is an integral over its rows. Both sides are rounded in
favour of the line by a second at each change, as the engine learns a change a moment after the ledger.

The same is asked of the time after each change: from then on calls come out of what the bucket may still have held and
the rates that followed. A lower rate cuts what was saved in proportion; after a rate of 0 nothing is left of it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from sqlalchemy import text

from services.queue import redis_keys
from services.queue.line.repository import LaneTotals, LineRepository
from services.queue.rooms.model import WaitingRoom
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.redis.client import Redis
from shared.rules.rollout import outside
from shared.runtime.clock import from_datetime

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


async def rate_invariant(
    connection: AsyncConnection, room: WaitingRoom, *, lowest_rollout: float, clock_offset_ms: int
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


SHOWN_MAX = 5

LEDGER = {
    "3 a holder has one live place": """
        SELECT holder FROM queue.place WHERE event_id = :event_id AND epoch = :epoch AND ended_at IS NULL
        GROUP BY holder HAVING count(*) > 1""",
    "4 every call is of a place that joined": """
        SELECT a.join_seq::text
        FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
        LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq) WHERE p.holder IS NULL""",
}
CALLED = text("""
    SELECT a.lane, a.join_seq, l.head_seq, p.holder
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
    JOIN queue.lane l USING (event_id, epoch, lane) LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)
    WHERE a.join_seq > l.head_seq OR :drawn""")
LOWEST_ROLLOUT = text("""
    SELECT coalesce(min((after->>'rollout_percent')::float), 100) FROM queue.room_change WHERE event_id = :event_id""")
OPEN_CALLS = text("""
    SELECT a.lane, a.join_seq
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
    JOIN queue.place p USING (event_id, epoch, lane, join_seq)
    WHERE a.state IN ('called', 'claimed') AND p.how IS NULL""")
TAILS = text("""
    SELECT lane, max(join_seq) AS tail FROM queue.place WHERE event_id = :event_id AND epoch = :epoch GROUP BY lane""")


async def audit(db: AsyncEngine, redis: Redis, room: WaitingRoom, *, clock_offset_ms: int = 0) -> list[dict[str, Any]]:
    """One line per promise: `{invariant, holds, detail}`; `detail` names the first few that break it."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    async with db.connect() as connection:
        found = {name: list((await connection.execute(text(sql), which)).scalars()) for name, sql in LEDGER.items()}
        found["5 nobody is called beyond the head"] = await _beyond(connection, room)
        standing = await _standing(redis, room)
        open_calls = {f"{row.lane}:{row.join_seq}" for row in await connection.execute(OPEN_CALLS, which)}
        tails = {row.lane: row.tail for row in await connection.execute(TAILS, which)}
        after = await _standing(redis, room)
        tallies = await LineRepository(connection, room.event_id, room.epoch).tallies()
        found["4 no more calls than bursts, rate and admits allow"] = await rate_invariant(
            connection, room, lowest_rollout=await _lowest_rollout(connection, which), clock_offset_ms=clock_offset_ms
        )
    found["4 lanes share contested calls by weight"] = uneven(tallies)
    if standing is None or after is None:
        found["3 the engine is filled"] = [room.event_id]
    else:
        found["3 no number is given twice: the counter is at or past the ledger"] = [
            f"lane {lane}: {after.counters.get(lane, 0)} < {tail}" for lane, tail in tails.items()
            if after.counters.get(lane, 0) < tail
        ]  # fmt: skip
        settled = standing.settled & after.settled  # what no change was under way for while the ledger was read
        found["4 slots in engine and ledger are the same"] = sorted(
            (settled - open_calls) | (open_calls - standing.places - after.places if not after.unwritten else set())
        )
    return [_line(name, broken) for name, broken in found.items()]


async def _beyond(connection: AsyncConnection, room: WaitingRoom) -> list[str]:
    """Calls above the head, but for those of fans who were outside the rolled-out share at some time."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    lowest = await _lowest_rollout(connection, which)
    calls = await connection.execute(CALLED, {**which, "drawn": bool(room.draw.lanes)})
    beyond = [call for call in calls if room.draw.rank(call.lane, call.join_seq) > call.head_seq]
    return [str(call.join_seq) for call in beyond if not outside(room.event_id, call.holder or "", lowest)]


async def _lowest_rollout(connection: AsyncConnection, which: dict[str, Any]) -> float:
    return float((await connection.execute(LOWEST_ROLLOUT, which)).scalar_one())


def uneven(tallies: Mapping[int, LaneTotals]) -> list[str]:
    """Lanes whose calls, in turns when all had somebody to call, are not their due.

    What a lane is owed is carried from turn to turn and is always less than a call per lane, so over one spell of such
    turns calls and due differ by less than twice that, however long it is.
    """
    return [
        f"lane {lane}: {tally.contested} of {tally.due:.1f}" for lane, tally in tallies.items()
        if abs(tally.contested - tally.due) > 2 * len(tallies) * tally.contests + 0.001 * tally.contested
    ]  # fmt: skip


def _line(invariant: str, broken: list[str]) -> dict[str, Any]:
    detail = f"{len(broken)} broken: {', '.join(map(str, broken[:SHOWN_MAX]))}" if broken else "nothing found"
    return {"invariant": invariant, "holds": not broken, "detail": detail}


class _Standing:
    """The slots taken in the engine, those of them the ledger must know, and the counters."""

    def __init__(self, places: set[str], unwritten: set[str], counters: dict[int, int]) -> None:
        self.places, self.unwritten, self.counters = places, unwritten, counters
        self.settled = places - unwritten


async def _standing(redis: Redis, room: WaitingRoom) -> _Standing | None:
    pipe = redis.pipeline(transaction=True)
    pipe.hgetall(redis_keys.room(room.event_id))
    for part in (redis_keys.called, redis_keys.active, redis_keys.unwritten):
        pipe.zrangebyscore(part(room.event_id, room.epoch), "-inf", "(inf")  # all but its mark
    fields, called, active, changes = await pipe.execute()
    if fields.get(b"ready") != b"1":
        return None
    unwritten = {_entry(room, ":".join(change.decode().split(":")[2:4])) for change in changes}
    counters = {lane: int(fields.get(f"join_seq:{lane}".encode(), 0)) for lane in room.lanes}
    return _Standing({_entry(room, place.decode()) for place in (*called, *active)}, unwritten, counters)


def _entry(room: WaitingRoom, place: str) -> str:
    """The engine's `lane:rank` as the ledger names it."""
    lane, rank = map(int, place.split(":"))
    return f"{lane}:{room.draw.entry(lane, rank)}"
