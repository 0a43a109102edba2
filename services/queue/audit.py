"""The promises about the line (invariants 3 to 5), each as a question to ledger and engine that must find nothing."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from services.queue import keys
from services.queue.ledger import Of, Tally
from services.queue.pledge import overcalled
from services.queue.room import Room
from shared.postgres import AsyncConnection, AsyncEngine
from shared.redis import Redis
from shared.rollout import outside

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


async def audit(engine: AsyncEngine, redis: Redis, room: Room, *, clock_offset_ms: int = 0) -> list[dict[str, Any]]:
    """One line per promise: `{invariant, holds, detail}`; `detail` names the first few that break it."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    async with engine.connect() as connection:
        found = {name: list((await connection.execute(text(sql), which)).scalars()) for name, sql in LEDGER.items()}
        found["5 nobody is called beyond the head"] = await _beyond(connection, room)
        standing = await _standing(redis, room)
        open_calls = {f"{row.lane}:{row.join_seq}" for row in await connection.execute(OPEN_CALLS, which)}
        tails = {row.lane: row.tail for row in await connection.execute(TAILS, which)}
        after = await _standing(redis, room)
        tallies = await Of(connection, room.event_id, room.epoch).tallies()
        found["4 no more calls than bursts, rate and admits allow"] = await overcalled(
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


async def _beyond(connection: AsyncConnection, room: Room) -> list[str]:
    """Calls above the head, but for those of fans who were outside the rolled-out share at some time."""
    which = {"event_id": room.event_id, "epoch": room.epoch}
    lowest = await _lowest_rollout(connection, which)
    calls = await connection.execute(CALLED, {**which, "drawn": bool(room.draw.lanes)})
    beyond = [call for call in calls if room.draw.rank(call.lane, call.join_seq) > call.head_seq]
    return [str(call.join_seq) for call in beyond if not outside(room.event_id, call.holder or "", lowest)]


async def _lowest_rollout(connection: AsyncConnection, which: dict[str, Any]) -> float:
    return float((await connection.execute(LOWEST_ROLLOUT, which)).scalar_one())


def uneven(tallies: Mapping[int, Tally]) -> list[str]:
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


async def _standing(redis: Redis, room: Room) -> _Standing | None:
    pipe = redis.pipeline(transaction=True)
    pipe.hgetall(keys.room(room.event_id))
    for part in (keys.called, keys.active, keys.unwritten):
        pipe.zrangebyscore(part(room.event_id, room.epoch), "-inf", "(inf")  # all but its mark
    fields, called, active, changes = await pipe.execute()
    if fields.get(b"ready") != b"1":
        return None
    unwritten = {_entry(room, ":".join(change.decode().split(":")[2:4])) for change in changes}
    counters = {lane: int(fields.get(f"join_seq:{lane}".encode(), 0)) for lane in room.lanes}
    return _Standing({_entry(room, place.decode()) for place in (*called, *active)}, unwritten, counters)


def _entry(room: Room, place: str) -> str:
    """The engine's `lane:rank` as the ledger names it."""
    lane, rank = map(int, place.split(":"))
    return f"{lane}:{room.draw.entry(lane, rank)}"
