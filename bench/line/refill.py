"""P7: the rebuild of a long line after Redis lost everything, compared with a sorted set rebuilt from a table."""

import asyncio
import statistics
import time
from dataclasses import dataclass

import redis.asyncio

from bench.baselines.line_designs import fan
from bench.harness import system
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial
from bench.line.joins import EVENT
from services.queue import redis_keys
from shared.postgres.engine import raw_statement

PLACES, QUICK_PLACES = 2_000_000, 3_000
CALLED_SHARE, CALLED_NOW, ACTIVE_NOW = 0.1, 500, 4_000
AT_LEAST_S, AIM_S, POLL_S, TIMEOUT_S, ADD_AT_ONCE = 5, 1, 0.005, 120.0, 10_000
ROOM = EVENT.room.model_copy(
    update={"rate_per_s": 1000, "burst": 1000, "max_active": 1_000_000, "session_s": 86_400, "claim_window_s": 3600}
)
INSERT_PLACES = raw_statement(__package__, "insert_places")


def refill() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P7",
        title="a line of 2,000,000 places back after FLUSHALL",
        settings=[
            f"The ledger holds {PLACES:,} places. A tenth were called: most of them have bought, left or run out of "
            f"chances, a twentieth of them missed a call, the last {CALLED_NOW + ACTIVE_NOW:,} have a session or a "
            "standing call. Of those who wait, one in 37 has left.",
            "Ours: the queue process, default settings, ticking. `FLUSHALL`, then the engine is looked at every "
            f"{POLL_S * 1000:.0f} ms: ready with the ledger's head and tail; and the first call after it.",
            "Sorted set: the waiting read from the same table and added again, "
            f"{ADD_AT_ONCE:,} members a command. It has no sessions, misses or ended places to bring one.",
        ],
        find=find,
    )


@dataclass(frozen=True)
class Sizes:
    """The length of the line and of its parts."""

    places: int
    called: int
    active: int

    @property
    def head(self) -> int:
        return int(self.places * CALLED_SHARE)

    @property
    def finished(self) -> int:
        return self.head - self.called - self.active

    def sql(self) -> list[str]:
        filled = INSERT_PLACES.format(
            event_id=EVENT.event_id, places=self.places, head=self.head, finished=self.finished, called=self.called
        )
        return [statement for statement in filled.split(";") if statement.strip()]


@dataclass(frozen=True)
class Recovery:
    """Seconds from `FLUSHALL`."""

    ready_s: float
    called_s: float


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """One database; both sides lose Redis and rebuild it, alternately."""
    sizes = Sizes(QUICK_PLACES, 50, 100) if effort.quick else Sizes(PLACES, CALLED_NOW, ACTIVE_NOW)
    event = EVENT.model_copy(update={"room": ROOM})
    recoveries, theirs_s = [], []
    async with testbed.trial() as trial:
        async with trial.servers_within() as servers:
            ports = await system.serve(servers, ("queue",))
            await system.apply_room(event, ports["queue"])
        await trial.sql(*sizes.sql(), "CHECKPOINT")
        for _ in range(effort.rounds):
            async with trial.servers_within() as servers:
                ports = await system.serve(servers, ("queue",))
                await system.open_room(event, ports["queue"])
                recoveries.append(await _lose_and_rebuild(trial, sizes))
            theirs_s.append(await _rebuild_sorted_set(trial, sizes))
    return _figures(sizes, recoveries, theirs_s)


async def _lose_and_rebuild(trial: Trial, sizes: Sizes) -> Recovery:
    """Waits for a complete line, empties Redis, and measures the recovery."""
    async with trial.redis() as client:
        await _until_ready(client, sizes, calls_above=0)
        started_s, calls = time.perf_counter(), await _calls_written(trial)
        await client.flushall()
        ready_s = await _until_ready(client, sizes, calls_above=None) - started_s
        called_s = await _until_ready(client, sizes, calls_above=0) - started_s
        if await _calls_twice(trial):
            raise CheckFailed("somebody was called twice")
        if await _calls_written(trial) < calls:
            raise CheckFailed("a call was lost")
    return Recovery(ready_s, called_s)


async def _until_ready(client: redis.asyncio.Redis, sizes: Sizes, *, calls_above: int | None) -> float:
    """The time when the room is ready with the database's head and tail and, if given, has called more fans."""
    wanted = ("ready", "head_seq:0", "join_seq:0", "calls")
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            ready, head, tail, calls = await client.hmget(redis_keys.room(EVENT.event_id), *wanted)
            complete = ready == b"1" and int(head or 0) >= sizes.head and int(tail or 0) == sizes.places
            if complete and (calls_above is None or int(calls or 0) > calls_above):
                return time.perf_counter()
            await asyncio.sleep(POLL_S)


async def _calls_written(trial: Trial) -> int:
    return await trial.count("SELECT count(*) FROM queue.admission")


async def _calls_twice(trial: Trial) -> int:
    return await trial.count(
        "SELECT count(*) FROM (SELECT 1 FROM queue.admission WHERE state IN ('called', 'claimed') "
        "GROUP BY lane, join_seq HAVING count(*) > 1) AS twice"
    )


async def _rebuild_sorted_set(trial: Trial, sizes: Sizes) -> float:
    """Seconds until the sorted set is complete again."""
    waiting = "SELECT join_seq FROM queue.place WHERE ended_at IS NULL AND join_seq > $1 ORDER BY join_seq"
    await trial.flush_redis()
    async with trial.redis() as client:
        started_s = time.perf_counter()
        async with trial.connection() as connection, connection.transaction():
            cursor = await connection.cursor(waiting, sizes.head)
            while rows := await cursor.fetch(ADD_AT_ONCE):
                await client.zadd("textbook:line", {fan(n): n for (n,) in rows})
        took_s = time.perf_counter() - started_s
    await trial.flush_redis()
    return took_s


def _figures(sizes: Sizes, recoveries: list[Recovery], theirs_s: list[float]) -> Figures:
    rows: list[tuple[str, ...]] = [
        ("ours: ready", *_spread([one.ready_s for one in recoveries])),
        ("ours: first call", *_spread([one.called_s for one in recoveries])),
        ("sorted set: filled", *_spread(theirs_s)),
    ]
    ready_s, other_s = statistics.median(one.ready_s for one in recoveries), statistics.median(theirs_s)
    claim = Claim(
        f"P7 line of {sizes.places:,} back after FLUSHALL", f"{ready_s:.2f} s", f"sorted set {other_s:.2f} s",
        f"{other_s / ready_s:.1f} × sooner", f"within {AT_LEAST_S} s, aim {AIM_S} s",
    )  # fmt: skip
    checked = ["head and tail as in the ledger", "nobody called twice", "no call lost"]
    return Figures(("", "min s", "median s", "max s"), rows, [claim], checked)


def _spread(seconds: list[float]) -> tuple[str, str, str]:
    return f"{min(seconds):.2f}", f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"
