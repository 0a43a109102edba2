"""Clocks that a test sets, each alone: of Redis, of the database and of this process."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from onsale.local.engines import with_driver
from shared.process import clock_offsets
from shared.redis.client import Script

HOUR_MS = 3_600_000
STEPPED_CLOCK = """
    CREATE SCHEMA stepped;
    CREATE TABLE stepped.step AS SELECT 0 AS ms;
    CREATE FUNCTION stepped.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
        'SELECT pg_catalog.clock_timestamp() + ms * interval ''1 millisecond'' FROM stepped.step';
"""


def each_clock(*steps_ms: int) -> list[Any]:
    """Each clock with each of the steps; in `make test` each clock, and each step, about once."""
    return [
        pytest.param(which, by_ms, marks=() if n == m % len(steps_ms) else pytest.mark.proof)
        for m, which in enumerate(("redis", "postgres", "process"))
        for n, by_ms in enumerate(steps_ms)
    ]


class Steps:
    """Sets the clocks of Redis, the database and this process forward and back, as services read them."""

    def __init__(self, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._db, self._redis_ms, self._process_ms = db, 0, 0
        bind, redis_ms, time_ns = Script.bind, clock_offsets.redis_ms, time.time_ns

        def bind_stepped(script: Script, named: Any) -> Any:
            if "clock_offset_ms" in named:
                named = {**named, "clock_offset_ms": named["clock_offset_ms"] + self._redis_ms}
            return bind(script, named)

        async def stepped_redis_ms(node: Any) -> int:
            return await redis_ms(node) + self._redis_ms

        monkeypatch.setattr(Script, "bind", bind_stepped)
        monkeypatch.setattr(clock_offsets, "redis_ms", stepped_redis_ms)
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + self._process_ms * 1_000_000)

    async def set(self, which: str, ms: int) -> None:
        """Sets one clock `ms` off the true time."""
        if which == "postgres":
            await self._db.execute("UPDATE stepped.step SET ms = $1", ms)
        else:
            setattr(self, f"_{which}_ms", ms)


@pytest.fixture
async def steps(own_database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Steps]:
    """Must be requested before any fixture that connects."""
    async with stepping(own_database, monkeypatch) as clock_steps:
        yield clock_steps


@asynccontextmanager
async def stepping(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Steps]:
    """Must start before anything else connects: a session finds the stepped clock by its search path."""
    connection = await asyncpg.connect(with_driver(postgres_url))
    await connection.execute(STEPPED_CLOCK)
    name = postgres_url.rsplit("/", 1)[1]
    await connection.execute(f"ALTER DATABASE {name} SET search_path = stepped, pg_catalog, public")
    yield Steps(connection, monkeypatch)
    await connection.close()
