"""Checks the invariants of a line (3 to 5 of the system's) in the database and in Redis; each must find no violation.

Invariant 4, over the life of a line: no more calls than the bursts, the rate over time and the manual admissions allow.
The audit log knows every rate and when it held, so the bound is an integral over its entries. Both sides are rounded in
favour of the line by a second at each change, because Redis gets a change a moment after the database. The same is
checked for the time after each change: calls then come out of the tokens that may have been saved and the rates that
followed. A lower rate cuts saved tokens in proportion; after a rate of 0 none are left.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import text

from services.queue import redis_keys
from services.queue.line.repository import LaneTotals, LineRepository
from services.queue.line.rules import Bypass
from services.queue.rooms.model import WaitingRoom
from shared.audit_log import of_event
from shared.contracts.admin.queue import QueueInvariant
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.redis.client import Redis
from shared.runtime.clock import from_datetime

SLACK_S = 1.0
LATE_TICK_S = 0.4  # the bucket may hold the tokens of a late tick beyond the burst
CALLING = frozenset({"open", "draining"})
AuditLog = Sequence[tuple[datetime, str, dict[str, Any]]]
PassesBy = Callable[[str], bool] | None  # of a holder
CALLS = text("""
    SELECT width_bucket(coalesce(deadline_ms, 0), CAST(:bounds AS bigint[])) AS bucket, count(*) AS calls
    FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch GROUP BY 1""")
CALLS_WITH_HOLDERS = text("""
    SELECT p.holder, coalesce(a.deadline_ms, 0) AS deadline_ms
    FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
    LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq)""")
AUDIT_LOG = text(
    "SELECT at, action, after FROM queue.audit_log WHERE subject = :subject "
    "AND CAST(after ->> 'epoch' AS int) = :epoch ORDER BY id"
)
NOW = text("SELECT clock_timestamp()")
CALLS_BEYOND_HEAD, LIVE_SLOTS = (statement(__package__, name) for name in ("calls_beyond_head", "live_slots"))


async def rate_invariant(
    connection: AsyncConnection, room: WaitingRoom, *, passes_by: PassesBy, clock_offset_ms: int
) -> list[str]:
    """Violations of the allowed number of calls, in all and since each change. Calls of fans who might pass the line by
    at some time are not counted.
    """
    which = {"event_id": room.event_id, "epoch": room.epoch}
    subject_and_epoch = {"subject": of_event(room.event_id), "epoch": room.epoch}
    entries = [(row.at, row.action, row.after) for row in await connection.execute(AUDIT_LOG, subject_and_epoch)]
    now = (await connection.execute(NOW)).scalar_one() + timedelta(milliseconds=clock_offset_ms)
    bounds = _deadlines_after(entries, clock_offset_ms)
    counts = [0] * (len(bounds) + 1)  # calls between one bound and the next
    if passes_by is not None:
        for call in await connection.execute(CALLS_WITH_HOLDERS, which):
            if not passes_by(call.holder or ""):
                counts[bisect_right(bounds, call.deadline_ms)] += 1
    else:
        for row in await connection.execute(CALLS, {**which, "bounds": bounds}):
            counts[row.bucket] += row.calls
    calls, most = sum(counts), allowed(entries, now)
    broken = [f"{calls} calls, {most:.0f} allowed"] if calls > most + 1 else []
    since = list(accumulate(reversed(counts)))[::-1][1:]
    for (at, _, _), made, may in zip(entries, since, allowed_since(entries, now), strict=True):
        if made > may + 1:
            broken.append(f"{made} calls since the change of {at:%Y-%m-%d %H:%M:%S}, {may:.0f} allowed")
    return broken


def _deadlines_after(entries: AuditLog, clock_offset_ms: int) -> list[int]:
    """For each change, the claim deadline from which on a call was certainly made after it; ascending."""
    window_ms = 1000 * max((after["claim_window_s"] for _, _, after in entries), default=0)
    slack_ms = round(SLACK_S * 1000) + clock_offset_ms + window_ms
    return list(accumulate((from_datetime(at) + slack_ms for at, _, _ in entries), max))


def allowed(entries: AuditLog, until: datetime) -> float:
    """Calls allowed by the audit log, as (time, action, configuration afterwards), oldest first."""
    return sum(_per_change(entries, until)) + max((_cap(after) for _, _, after in entries), default=0.0)


def allowed_since(entries: AuditLog, until: datetime) -> list[float]:
    """For each change, the calls allowed from then on: tokens saved until then and tokens added since."""
    given = list(accumulate(reversed(_per_change(entries, until))))[::-1]
    saved, kept = [], 0.0
    for i, (at, _, after) in enumerate(entries):
        if i:
            before_at, _, before = entries[i - 1]
            if before["state"] in CALLING:
                kept = min(_cap(before), kept + before["rate_per_s"] * ((at - before_at).total_seconds() + SLACK_S))
            if after["rate_per_s"] < before["rate_per_s"]:
                kept *= after["rate_per_s"] / before["rate_per_s"]
        kept = min(kept, _cap(after)) if after["state"] in CALLING and after["rate_per_s"] > 0 else 0.0
        saved.append(kept)
    return [more + kept for more, kept in zip(given, saved, strict=True)]


def _per_change(entries: AuditLog, until: datetime) -> list[float]:
    """For each change, the calls allowed while it held: its rate over that time, and its manual admissions."""
    ends = [at for at, _, _ in entries[1:]] + [until]
    return [
        (after["admit"] if action == "admit" else 0.0)
        + (after["rate_per_s"] * ((end - at).total_seconds() + SLACK_S) if after["state"] in CALLING else 0.0)
        for (at, action, after), end in zip(entries, ends, strict=False)
    ]


def _cap(after: dict[str, Any]) -> float:
    return float(max(after["burst"], after["rate_per_s"] * LATE_TICK_S))


SHOWN_MAX, SETTLED_AFTER_S = 5, 1.0
DB_CHECKS = {
    "3 a holder has one live place": """
        SELECT holder FROM queue.place WHERE event_id = :event_id AND epoch = :epoch AND ended_at IS NULL
        GROUP BY holder HAVING count(*) > 1""",
    "4 every call is of a place that joined": """
        SELECT a.join_seq::text
        FROM (SELECT * FROM queue.admission WHERE event_id = :event_id AND epoch = :epoch OFFSET 0) AS a
        LEFT JOIN queue.place p USING (event_id, epoch, lane, join_seq) WHERE p.holder IS NULL""",
}
TAILS = text("""
    SELECT lane, max(join_seq) AS tail FROM queue.place WHERE event_id = :event_id AND epoch = :epoch GROUP BY lane""")


async def check_invariants(
    db: AsyncEngine, redis: Redis, room: WaitingRoom, bypass: Bypass | None, *, clock_offset_ms: int = 0
) -> list[QueueInvariant]:
    """All invariants; `detail` names the first few violations."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    async with db.connect() as connection:
        violations = {
            name: list((await connection.execute(text(sql), which)).scalars()) for name, sql in DB_CHECKS.items()
        }
        passes_by = await bypass.ever_among(connection, room) if bypass is not None else None
        violations["5 nobody is called beyond the head"] = await _called_beyond_head(connection, room, passes_by)
        copies = await _read_copies(connection, redis, room)
        if different := copies.different_slots():  # a place is ended in the database and then in Redis
            await asyncio.sleep(SETTLED_AFTER_S)
            copies = await _read_copies(connection, redis, room)
            different &= copies.different_slots()
        lane_totals = await LineRepository(connection, room.event_id, room.epoch).lane_totals()
        violations["4 no more calls than bursts, rate and admits allow"] = await rate_invariant(
            connection, room, passes_by=passes_by, clock_offset_ms=clock_offset_ms
        )
    violations["4 lanes share contended calls by weight"] = unfair_lanes(lane_totals)
    if copies.after is None:
        violations["3 Redis holds the line"] = [room.event_id]
    else:
        violations["3 no number is given twice: the counter is at or past the database"] = [
            f"lane {lane}: {copies.after.counters.get(lane, 0)} < {tail}" for lane, tail in copies.tails.items()
            if copies.after.counters.get(lane, 0) < tail
        ]  # fmt: skip
        violations["4 slots in Redis and in the database are the same"] = sorted(different)
    return [_result(name, broken) for name, broken in violations.items()]


async def _called_beyond_head(connection: AsyncConnection, room: WaitingRoom, passes_by: PassesBy) -> list[str]:
    """Calls above the head, except those of fans who might pass the line by at some time."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    calls = await connection.execute(CALLS_BEYOND_HEAD, {**which, "all_calls": room.ranking.ranked})
    beyond = [call for call in calls if room.ranking.rank(call.lane, call.join_seq) > call.head_seq]
    return [str(call.join_seq) for call in beyond if passes_by is None or not passes_by(call.holder or "")]


def unfair_lanes(lane_totals: Mapping[int, LaneTotals]) -> list[str]:
    """Lanes whose contended calls differ from their fair share.

    What a lane is owed is carried from tick to tick and is always less than a call per lane, so over one contention
    period calls and fair share differ by less than twice that, however long it is.
    """
    slack = 2 * len(lane_totals)
    return [
        f"lane {lane}: {totals.contended_calls} of {totals.fair_share:.1f}"
        for lane, totals in lane_totals.items()
        if abs(totals.contended_calls - totals.fair_share)
        > slack * totals.contention_periods + 0.001 * totals.contended_calls
    ]


def _result(invariant: str, broken: list[str]) -> QueueInvariant:
    detail = f"{len(broken)} broken: {', '.join(map(str, broken[:SHOWN_MAX]))}" if broken else "nothing found"
    return QueueInvariant(invariant=invariant, holds=not broken, detail=detail)


class _Copies(NamedTuple):
    """The open calls and the ends of the lanes in the database, and Redis as it was before and after."""

    before: "_RedisSlots | None"
    open_calls: set[str]
    tails: dict[int, int]
    after: "_RedisSlots | None"

    def different_slots(self) -> set[str]:
        """Slots that one copy has and the other lacks, without those that were changing while both were read."""
        before, after = self.before, self.after
        if before is None or after is None:
            return set()
        settled = (before.places & after.places) - before.unwritten - after.unwritten
        missing = self.open_calls - before.places - after.places if not after.unwritten else set()
        return (settled - self.open_calls) | missing


async def _read_copies(connection: AsyncConnection, redis: Redis, room: WaitingRoom) -> _Copies:
    which, before = {"event_id": room.event_id, "epoch": room.epoch}, await _redis_slots(redis, room)
    open_calls = {f"{row.lane}:{row.join_seq}" for row in await connection.execute(LIVE_SLOTS, which)}
    tails = {row.lane: row.tail for row in await connection.execute(TAILS, which)}
    after = await _redis_slots(redis, room) if before else None
    return _Copies(before, open_calls, tails, after)


class _RedisSlots(NamedTuple):
    """The slots in Redis, the places with changes that are not yet in the database, and the counters of the lanes."""

    places: set[str]
    unwritten: set[str]
    counters: dict[int, int]


async def _redis_slots(redis: Redis, room: WaitingRoom) -> _RedisSlots | None:
    pipe = redis.pipeline(transaction=True)
    pipe.hgetall(redis_keys.room(room.event_id))
    for part in (redis_keys.called, redis_keys.active, redis_keys.unwritten):
        pipe.zrangebyscore(part(room.event_id, room.epoch), "-inf", "(inf")  # all but its mark
    fields, called, active, changes = await pipe.execute()
    if fields.get(b"ready") != b"1":
        return None
    unwritten = {_entry(room, ":".join(change.decode().split(":")[2:4])) for change in changes}
    counters = {lane: int(fields.get(f"join_seq:{lane}".encode(), 0)) for lane in room.lanes}
    return _RedisSlots({_entry(room, place.decode()) for place in (*called, *active)}, unwritten, counters)


def _entry(room: WaitingRoom, place: str) -> str:
    """`lane:rank` of Redis as `lane:join_seq` of the database."""
    lane, rank = map(int, place.split(":"))
    return f"{lane}:{room.ranking.entry(lane, rank)}"
