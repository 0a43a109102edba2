"""Workers that end holds as it is usually done: by the news that a key expired, by a scan of the ledger, by a job each.

One uvicorn process that answers `/readyz`; `BENCH_WAY` says which of them works in it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from fastapi import FastAPI

from bench.baselines.pool import open_pool

LOOK_S, AT_ONCE, JOBS_AT_ONCE = 0.25, 500, 8
TABLES = """
CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE IF NOT EXISTS textbook.section (section_id text PRIMARY KEY, seats_remaining integer NOT NULL);
CREATE TABLE IF NOT EXISTS textbook.hold (
    hold_id text PRIMARY KEY, section_id text NOT NULL, quantity integer NOT NULL, held_until timestamptz NOT NULL,
    ended_at timestamptz
);
CREATE INDEX IF NOT EXISTS hold_due ON textbook.hold (held_until) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS textbook.job (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, hold_id text NOT NULL, run_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS job_due ON textbook.job (run_at);
"""
SCAN = """
WITH due AS (
    SELECT hold_id FROM textbook.hold WHERE ended_at IS NULL AND held_until <= now()
    ORDER BY held_until LIMIT $1 FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE textbook.hold h SET ended_at = clock_timestamp() FROM due WHERE h.hold_id = due.hold_id
    RETURNING h.section_id, h.quantity
), back AS (
    UPDATE textbook.section s SET seats_remaining = seats_remaining + b.n
    FROM (SELECT section_id, sum(quantity) AS n FROM ended GROUP BY section_id) AS b WHERE s.section_id = b.section_id
)
SELECT count(*) FROM ended
"""
TAKE_JOB = """
DELETE FROM textbook.job WHERE job_id = (
    SELECT job_id FROM textbook.job WHERE run_at <= now() ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING hold_id
"""
END_ONE = """
WITH ended AS (
    UPDATE textbook.hold SET ended_at = clock_timestamp() WHERE hold_id = $1 AND ended_at IS NULL
    RETURNING section_id, quantity
)
UPDATE textbook.section s SET seats_remaining = seats_remaining + ended.quantity
FROM ended WHERE s.section_id = ended.section_id
"""
GIVE_BACK = """
redis.call('INCRBY', KEYS[1], ARGV[2])
local now = redis.call('TIME')
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. now[1] * 1000 + math.floor(now[2] / 1000))
"""


async def scan(pool: Any, _: redis.asyncio.Redis) -> None:
    """All that is due, four times a second."""
    while True:
        if await pool.fetchval(SCAN, AT_ONCE) < AT_ONCE:
            await asyncio.sleep(LOOK_S)


async def jobs(pool: Any, _: redis.asyncio.Redis) -> None:
    """Every hold has a job, which is taken and done in one transaction; so many at a time."""

    async def work() -> None:
        while True:
            if not await _one_job(pool):
                await asyncio.sleep(LOOK_S)

    await asyncio.gather(*(work() for _ in range(JOBS_AT_ONCE)))


async def _one_job(pool: Any) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        hold_id = await connection.fetchval(TAKE_JOB)
        if hold_id is not None:
            await connection.execute(END_ONE, hold_id)
    return hold_id is not None


async def expired_keys(_: Any, client: redis.asyncio.Redis) -> None:
    """Gives back what an expired key's name says: `ttl:hold:<id>:<section>:<quantity>`."""
    await client.config_set("notify-keyspace-events", "Ex")
    news = client.pubsub()
    await news.psubscribe("__keyevent@*__:expired")
    async for told in news.listen():
        if told["type"] == "pmessage" and told["data"].startswith(b"ttl:hold:"):
            _, _, hold_id, section, quantity = told["data"].decode().split(":")
            await client.eval(GIVE_BACK, 2, f"ttl:left:{section}", "ttl:ended", hold_id, quantity)


WAYS: dict[str, Callable[[Any, redis.asyncio.Redis], Awaitable[None]]] = {
    "scan": scan, "job": jobs, "ttl": expired_keys,
}  # fmt: skip


def create_app() -> FastAPI:
    """The worker in `BENCH_WAY`; engines from `BENCH_POSTGRES_URL` (plain form) and `BENCH_REDIS_URL`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with open_pool(os.environ["BENCH_POSTGRES_URL"]) as pool:
            await pool.execute(TABLES)
            async with redis.asyncio.Redis.from_url(os.environ["BENCH_REDIS_URL"], protocol=2) as client:
                worker = asyncio.ensure_future(WAYS[os.environ["BENCH_WAY"]](pool, client))
                yield
                worker.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app
