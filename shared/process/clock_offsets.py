"""Compares the clocks that deadlines are kept by: this process's, PostgreSQL's and Redis', once a second while the
service writes, and rarely otherwise.

A deadline granted to a fan holds as long as any of these clocks says so: `slowest_ms` is the time by the slowest one.
Clocks more than a minute apart are unfit for deadlines: `require` refuses until they agree again. Code that ends a hold
or a place reads the clocks anew, so that a clock step counts before it is noticed here.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import text

from shared.concurrency.background import Quiet
from shared.errors.problems import ClocksApart
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY, Redis, primaries
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger
from shared.runtime.metrics import CLOCK_SKEW

log = get_logger("onsale.clocks")
REFRESH_S = 1.0
APART_MS = 60_000
STEP_MS = 1_000
POSTGRES, REDIS = "PostgreSQL", "Redis"
POSTGRES_NOW = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class Clocks:
    """How far each other clock was ahead of this process's when it was last read, in milliseconds."""

    def __init__(self, service: str = "") -> None:
        self._service = service
        self._ahead_ms = {POSTGRES: [0], REDIS: [0]}
        for clock in self._ahead_ms:
            CLOCK_SKEW.labels(service, clock)

    async def refresh(self, db: AsyncEngine, redis: Redis) -> Quiet:
        """Reads every clock once. The offset of an unreachable one stays as it was."""
        with suppress(*DB_AWAY):
            async with db.connect() as plain:
                connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
                self._record(POSTGRES, [await ahead_ms(partial(connection.scalar, POSTGRES_NOW))])
        with suppress(*REDIS_AWAY):
            self._record(REDIS, [await ahead_ms(partial(redis_ms, node)) for node in await primaries(redis)])
        return Quiet()

    def _record(self, clock: str, ahead_ms: list[int]) -> None:
        before, now = _furthest(self._ahead_ms[clock]), _furthest(ahead_ms)
        self._ahead_ms[clock] = ahead_ms
        CLOCK_SKEW.labels(self._service, clock).set(now / 1000)
        if abs(now - before) > STEP_MS:
            log.warning("clock.stepped", service=self._service, clock=clock, by_ms=now - before, ahead_ms=now)
        if abs(now) > APART_MS >= abs(before):
            log.error("clock.apart", service=self._service, clock=clock, ahead_ms=now)
        elif abs(before) > APART_MS >= abs(now):
            log.warning("clock.together", service=self._service, clock=clock, ahead_ms=now)

    def slowest_besides_redis_ms(self) -> int:
        """The time by the slower of this process and PostgreSQL; scripts compare it with Redis' own clock."""
        return now_ms() + min(0, *self._ahead_ms[POSTGRES])

    def slowest_ms(self) -> int:
        """The time by the slowest of all clocks."""
        return now_ms() + min(0, *self._ahead_ms[POSTGRES], *self._ahead_ms[REDIS])

    def apart(self) -> list[str]:
        """The clocks that are more than a minute off."""
        return [clock for clock, ahead_ms in self._ahead_ms.items() if abs(_furthest(ahead_ms)) > APART_MS]

    def warnings(self) -> list[str]:
        """One sentence for each clock that is more than a minute off, for `/readyz`."""
        return [describe_offset(clock, _furthest(self._ahead_ms[clock])) for clock in self.apart()]

    def require(self) -> None:
        """Raises `ClocksApart` for PostgreSQL's clock. Scripts that set deadlines check Redis' clock themselves."""
        if POSTGRES in self.apart():
            raise ClocksApart(describe_offset(POSTGRES, _furthest(self._ahead_ms[POSTGRES])))


def describe_offset(clock: str, ahead_ms: int) -> str:
    """One sentence for a person: how far the clock is off, and what that means."""
    direction = "ahead of" if ahead_ms > 0 else "behind"
    offset = f"The clock of {clock} is {abs(ahead_ms) / 1000:.0f} s {direction} this process's."
    return f"{offset} Nothing is sold until they are within {APART_MS // 1000} s; what is held stays held."


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


def _furthest(ahead_ms: list[int]) -> int:
    return max(ahead_ms, key=abs, default=0)
