"""Workers that end holds in the usual ways: by keyspace notifications of expired keys, by a table scan, by jobs.

One uvicorn process that answers `/readyz`; `BENCH_WORKER` selects the worker.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from fastapi import FastAPI

from bench.baselines.service import read_sql, service

POLL_S, AT_ONCE, JOBS_AT_ONCE = 0.25, 500, 8
SCAN = read_sql("end_due_holds")
TAKE_JOB = """
DELETE FROM textbook.job WHERE job_id = (
    SELECT job_id FROM textbook.job WHERE run_at <= now() ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING hold_id
"""
END_ONE = read_sql("end_hold")
RETURN_TO_SALE = """
redis.call('INCRBY', KEYS[1], ARGV[2])
local now = redis.call('TIME')
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. now[1] * 1000 + math.floor(now[2] / 1000))
"""


async def scan(pool: Any, _: redis.asyncio.Redis) -> None:
    """Ends all due holds, four times a second."""
    while True:
        if await pool.fetchval(SCAN, AT_ONCE) < AT_ONCE:
            await asyncio.sleep(POLL_S)


async def jobs(pool: Any, _: redis.asyncio.Redis) -> None:
    """Runs due jobs, one transaction each, `JOBS_AT_ONCE` at a time."""

    async def work() -> None:
        while True:
            if not await _one_job(pool):
                await asyncio.sleep(POLL_S)

    await asyncio.gather(*(work() for _ in range(JOBS_AT_ONCE)))


async def _one_job(pool: Any) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        hold_id = await connection.fetchval(TAKE_JOB)
        if hold_id is not None:
            await connection.execute(END_ONE, hold_id)
    return hold_id is not None


async def expired_keys(_: Any, client: redis.asyncio.Redis) -> None:
    """Returns the tickets named by an expired key: `ttl:hold:<id>:<section>:<quantity>`."""
    await client.config_set("notify-keyspace-events", "Ex")
    notifications = client.pubsub()
    await notifications.psubscribe("__keyevent@*__:expired")
    async for message in notifications.listen():
        if message["type"] == "pmessage" and message["data"].startswith(b"ttl:hold:"):
            _, _, hold_id, section, quantity = message["data"].decode().split(":")
            await client.eval(RETURN_TO_SALE, 2, f"ttl:left:{section}", "ttl:ended", hold_id, quantity)


WORKERS: dict[str, Callable[[Any, redis.asyncio.Redis], Awaitable[None]]] = {
    "scan": scan, "job": jobs, "ttl": expired_keys,
}  # fmt: skip


def create_app() -> FastAPI:
    """The worker in `BENCH_WORKER`, on `BENCH_REDIS_URL` and the tables in `BENCH_POSTGRES_URL`."""

    @asynccontextmanager
    async def working(pool: Any) -> AsyncIterator[None]:
        async with redis.asyncio.Redis.from_url(os.environ["BENCH_REDIS_URL"], protocol=2) as client:
            worker = asyncio.ensure_future(WORKERS[os.environ["BENCH_WORKER"]](pool, client))
            yield
            worker.cancel()

    return service("hold_tables", working)
