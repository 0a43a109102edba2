"""The cost of one answer: processor time of every service and database, rows and bytes in PostgreSQL, bytes in Valkey.

Processes of one service are added up. What the servers spend at rest in the same time is subtracted. Processor time is
that of a process and all its descendants, as the kernel counts it in nanoseconds; processes that have ended are not
counted, so measure servers that keep running.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bench.harness.measurement import Trial, cpu_seconds
from tests.support.wait import wait_until

US_PER_S, REST_S = 1_000_000, 1.5


SETTLED_S, POLL_S, LOG = 60.0, 0.05, "log:*"
DATABASE_COUNTS = """
SELECT xact_commit AS commits, tup_inserted + tup_updated + tup_deleted AS rows,
    (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS wal_bytes, pg_database_size(current_database()) AS disk_bytes
FROM pg_stat_database WHERE datname = current_database()
"""
OTHER_CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
UNPUBLISHED = """
SELECT count(*) FROM {schema}.outbox_batch
WHERE id > (SELECT coalesce(max(id), 0) FROM {schema}.outbox_cursor WHERE name = 'relay')
"""


@dataclass(frozen=True)
class LoadSummary:
    """The answers to a load: `count` from first to last, and the rate while it was measured."""

    count: int
    per_second: float
    p99_ms: float
    sent_bytes: int = 0


@dataclass(frozen=True)
class Workload:
    """Running servers: `drive` loads them, `check` compares their database with their answers. `redis_keys` is the
    pattern of their keys; `outbox_schema` is the schema of their outbox.
    """

    drive: Callable[[], Awaitable[LoadSummary]]
    check: Callable[[], Awaitable[list[str]]]
    redis_keys: str = ""
    outbox_schema: str = ""


@dataclass(frozen=True)
class Cost:
    """One round of one operation. `cpu_us` is processor time per answer by service and database; `per_answer` has
    bytes, rows and commits. `publish_lag_s` is the time from the last answer until all events are in the log.
    """

    load: LoadSummary
    cpu_us: Mapping[str, float]
    per_answer: Mapping[str, float] = field(default_factory=dict)
    publish_lag_s: float = 0.0
    checked: list[str] = field(default_factory=list)


async def cost(trial: Trial, up: Callable[[Trial], AbstractAsyncContextManager[Workload]]) -> Cost:
    """Starts the servers, loads and checks them. PostgreSQL's counters are read after its clients have left: it updates
    them then.
    """
    await _until_count_is_zero(trial, OTHER_CONNECTIONS)
    before = await trial.row(DATABASE_COUNTS)
    async with trial.servers_within() as servers, up(servers) as work:
        kept, logged = await _redis_bytes(trial, work.redis_keys), await _redis_bytes(trial, LOG)
        resting = cpu_seconds(servers)
        await asyncio.sleep(REST_S)
        began_s, began = time.perf_counter(), cpu_seconds(servers)
        done = await work.drive()
        took_s, ended = time.perf_counter() - began_s, cpu_seconds(servers)
        publish_lag_s = await _publish_lag_s(servers, work.outbox_schema)
        kept, logged = await _redis_bytes(trial, work.redis_keys) - kept, await _redis_bytes(trial, LOG) - logged
        checked = await work.check()
    us = {}
    for name in ended:
        at_rest_s = (began[name] - resting[name]) / REST_S * took_s
        us[name] = max(0.0, ended[name] - began[name] - at_rest_s) * US_PER_S / done.count
    await _until_count_is_zero(trial, OTHER_CONNECTIONS)
    after = await trial.row(DATABASE_COUNTS)
    each = {name: (after[name] - before[name]) / done.count for name in after} if work.outbox_schema else {}
    in_valkey = {"kept_bytes": max(0, kept) / done.count, "log_bytes": logged / done.count}
    return Cost(done, us, each | in_valkey, publish_lag_s, checked)


async def _publish_lag_s(trial: Trial, schema: str) -> float:
    """Seconds until the outbox is empty."""
    began_s = time.perf_counter()
    if schema:
        await _until_count_is_zero(trial, UNPUBLISHED.format(schema=schema))
    return time.perf_counter() - began_s


async def _until_count_is_zero(trial: Trial, counted: str) -> None:
    """Waits until this query counts 0."""

    async def is_zero() -> bool:
        return await trial.count(counted) == 0

    await wait_until(is_zero, timeout_s=SETTLED_S, interval_s=POLL_S)


async def _redis_bytes(trial: Trial, keys: str) -> int:
    """The memory of these keys in Valkey, every element counted."""
    if not keys:
        return 0
    async with trial.redis() as client:
        found = [key async for key in client.scan_iter(keys, count=1000)]
        return sum([await client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in found])
