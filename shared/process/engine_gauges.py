"""Gauges of the databases behind a service: Redis' memory, and statements that wait for a lock."""

from contextlib import suppress

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY, Redis, primaries
from shared.runtime.metrics import DATABASE_LOCK_WAITING, REDIS_MEMORY, REDIS_MEMORY_LIMIT

REFRESH_S = 10.0
LOCK_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = :application"
)


async def refresh_engine_gauges(service: str, db: AsyncEngine, redis: Redis) -> None:
    """Reads both once. While one is away its gauge stays as it was."""
    with suppress(*DB_AWAY):
        async with db.connect() as connection:
            waiting = await connection.scalar(LOCK_WAITING, {"application": f"onsale-{service}"})
        DATABASE_LOCK_WAITING.labels(service).set(waiting)
    with suppress(*REDIS_AWAY):
        for node in await primaries(redis):
            where = node.connection_pool.connection_kwargs
            name, memory = f"{where.get('host')}:{where.get('port')}", await node.info("memory")
            REDIS_MEMORY.labels(name).set(memory["used_memory"])
            REDIS_MEMORY_LIMIT.labels(name).set(memory["maxmemory"])
