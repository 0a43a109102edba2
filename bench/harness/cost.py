"""What one answer cost: processor time of every service and engine, rows and bytes of the ledger, bytes of Valkey.

Copies of a service count as one. What the servers spend at rest in as much time is taken off.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import redis.asyncio

from bench.harness.cpu import cpu_s
from bench.harness.stage import Turn
from bench.scale.growth_room import REST_S, US_PER_S

SETTLED_S, POLL_S, LOG = 60.0, 0.05, "log:*"
LEDGER = """
SELECT xact_commit AS commits, tup_inserted + tup_updated + tup_deleted AS rows,
    (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes, pg_database_size(current_database()) AS disk_bytes
FROM pg_stat_database WHERE datname = current_database()
"""
OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
UNTOLD = "SELECT count(*) FROM {schema}.outbox WHERE published_at IS NULL"


@dataclass(frozen=True)
class Done:
    """What a load came to: `count` answers from first to last, and the speed while it was measured."""

    count: int
    per_second: float
    p99_ms: float
    sent_bytes: int = 0


@dataclass(frozen=True)
class Work:
    """Servers that are up: `drive` loads them, `check` compares their ledger with what they answered. `keys` are those
    Valkey keeps of it; `schema` is whose outbox tells of it.
    """

    drive: Callable[[], Awaitable[Done]]
    check: Callable[[], Awaitable[list[str]]]
    keys: str = ""
    schema: str = ""


@dataclass(frozen=True)
class Cost:
    """One round of one operation. `us` is processor time an answer by service and engine, the rest is bytes, rows and
    commits an answer. `told_s` is how long after the last answer the log had heard of all.
    """

    done: Done
    us: Mapping[str, float]
    each: Mapping[str, float] = field(default_factory=dict)
    told_s: float = 0.0
    checked: list[str] = field(default_factory=list)


def processor_s(turn: Turn) -> Counter[str]:
    """Seconds so far, by service and engine."""
    spent: Counter[str] = Counter()
    for name, pid in {**turn.pids, **turn.stage.pids}.items():
        spent[name.partition("-")[0]] += cpu_s(pid)  # type: ignore[assignment] # seconds have fractions
    return spent


async def cost(turn: Turn, up: Callable[[Turn], AbstractAsyncContextManager[Work]]) -> Cost:
    """Starts it, loads it, checks it. The ledger's counts are read once its clients have left: they report then."""
    await _alone(turn)
    before = await turn.row(LEDGER)
    async with turn.some() as servers, up(servers) as work:
        kept, logged = await _kept_bytes(turn, work.keys), await _kept_bytes(turn, LOG)
        resting = processor_s(servers)
        await asyncio.sleep(REST_S)
        began_s, began = time.perf_counter(), processor_s(servers)
        done = await work.drive()
        took_s, ended = time.perf_counter() - began_s, processor_s(servers)
        told_s = await _told_s(servers, work.schema)
        kept, logged = await _kept_bytes(turn, work.keys) - kept, await _kept_bytes(turn, LOG) - logged
        checked = await work.check()
    us = {}
    for name in ended:
        at_rest_s = (began[name] - resting[name]) / REST_S * took_s
        us[name] = max(0.0, ended[name] - began[name] - at_rest_s) * US_PER_S / done.count
    await _alone(turn)
    after = await turn.row(LEDGER)
    each = {name: (after[name] - before[name]) / done.count for name in after} if work.schema else {}
    in_valkey = {"kept_bytes": max(0, kept) / done.count, "log_bytes": logged / done.count}
    return Cost(done, us, each | in_valkey, told_s, checked)


async def _alone(turn: Turn) -> None:
    """Waits until nobody else is connected to this turn's ledger."""
    await _until_none(turn, OTHERS)


async def _told_s(turn: Turn, schema: str) -> float:
    """Seconds until the outbox is empty."""
    began_s = time.perf_counter()
    if schema:
        await _until_none(turn, UNTOLD.format(schema=schema))
    return time.perf_counter() - began_s


async def _until_none(turn: Turn, counted: str) -> None:
    """Waits until this count is 0. Raises `TimeoutError`."""
    async with asyncio.timeout(SETTLED_S):
        while True:
            if not await turn.count(counted):
                return
            await asyncio.sleep(POLL_S)


async def _kept_bytes(turn: Turn, keys: str) -> int:
    """What Valkey says these keys take, every element counted."""
    if not keys:
        return 0
    async with redis.asyncio.Redis.from_url(turn.redis_url) as client:
        found = [key async for key in client.scan_iter(keys, count=1000)]
        return sum([await client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in found])
