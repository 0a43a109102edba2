"""Reads the clocks that deadlines are kept by: PostgreSQL's and Redis' beside this process's, once a second while the
service writes, and rarely otherwise.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import text

from shared.concurrency.background import Quiet
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY, Redis, primaries
from shared.runtime.clock import APART_MS, POSTGRES, REDIS, Clocks, furthest, now_ms
from shared.runtime.logging import get_logger
from shared.runtime.metrics import CLOCK_SKEW

log = get_logger("onsale.clocks")
REFRESH_S = 1.0
STEP_MS = 1_000
POSTGRES_NOW = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


async def read_clocks(clocks: Clocks, db: AsyncEngine, redis: Redis) -> Quiet:
    """Reads every clock once. The offset of an unreachable one stays as it was."""
    with suppress(*DB_AWAY):
        async with db.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            record(clocks, POSTGRES, [await ahead_ms(partial(connection.scalar, POSTGRES_NOW))])
    with suppress(*REDIS_AWAY):
        record(clocks, REDIS, [await ahead_ms(partial(redis_ms, node)) for node in await primaries(redis)])
    return Quiet()


def record(clocks: Clocks, clock: str, ahead_ms: list[int]) -> None:
    """The offsets of this clock as just read; a step of it is logged."""
    before, now = furthest(clocks.ahead_ms[clock]), furthest(ahead_ms)
    clocks.ahead_ms[clock] = ahead_ms
    CLOCK_SKEW.labels(clocks.service, clock).set(now / 1000)
    if abs(now - before) > STEP_MS:
        log.warning("clock.stepped", service=clocks.service, clock=clock, by_ms=now - before, ahead_ms=now)
    if abs(now) > APART_MS >= abs(before):
        log.error("clock.apart", service=clocks.service, clock=clock, ahead_ms=now)
    elif abs(before) > APART_MS >= abs(now):
        log.warning("clock.together", service=clocks.service, clock=clock, ahead_ms=now)


async def redis_ms(node: Redis) -> int:
    """The clock of one Redis process, in milliseconds since the epoch."""
    seconds, microseconds = await node.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def ahead_ms(read: Callable[[], Awaitable[Any]]) -> int:
    """The least offset that fits, as the clock was read at an unknown moment of the call; 0 if they may agree."""
    before_ms = now_ms()
    other_ms = int(await read())
    after_ms = now_ms()
    return other_ms - after_ms if other_ms > after_ms else min(0, other_ms - before_ms)
