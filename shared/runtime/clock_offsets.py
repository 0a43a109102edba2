"""The clocks that promises are kept by: this process's, the ledger's and the engines', compared each second.

What somebody was promised until a time is theirs as long as one clock says so: `slowest_ms` is the time by whichever is
behind. Clocks that are more than a minute apart are nothing to promise by: `require` refuses until they
agree again. Whoever decides an end reads the clocks at hand anew, so that a step counts before it is noticed here.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import text

from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.redis.client import REDIS_AWAY, Redis, primaries
from shared.runtime.clock import now_ms
from shared.runtime.logging import data
from shared.runtime.metrics import CLOCK_SKEW
from shared.web.problems import ClocksApart

log = logging.getLogger("onsale.clocks")
APART_MS = 60_000
STEP_MS = 1_000
LEDGER, ENGINE = "PostgreSQL", "Redis"
LEDGER_NOW = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class Clocks:
    """How far the others were ahead of this process's clock when they were last asked."""

    def __init__(self, service: str = "") -> None:
        self._service = service
        self._ahead_ms = {LEDGER: [0], ENGINE: [0]}

    async def look(self, ledger: AsyncEngine, redis: Redis) -> None:
        """One turn. A clock that is away is taken to go as it did."""
        with suppress(*DB_AWAY):
            async with ledger.connect() as connection:
                self._saw(LEDGER, [await _ahead_ms(partial(connection.scalar, LEDGER_NOW))])
        with suppress(*REDIS_AWAY):
            self._saw(ENGINE, [await _ahead_ms(partial(redis_ms, node)) for node in await primaries(redis)])

    def _saw(self, which: str, ahead_ms: list[int]) -> None:
        before, now = _furthest(self._ahead_ms[which]), _furthest(ahead_ms)
        self._ahead_ms[which] = ahead_ms
        CLOCK_SKEW.labels(self._service, which).set(now / 1000)
        if abs(now - before) > STEP_MS:
            log.warning(
                "clock.stepped", extra=data(service=self._service, clock=which, by_ms=now - before, ahead_ms=now)
            )
        if abs(now) > APART_MS >= abs(before):
            log.error("clock.apart", extra=data(service=self._service, clock=which, ahead_ms=now))
        elif abs(before) > APART_MS >= abs(now):
            log.warning("clock.together", extra=data(service=self._service, clock=which, ahead_ms=now))

    def others_ms(self) -> int:
        """The time by the slower one of this process and the ledger: what scripts compare with their engine's."""
        return now_ms() + min(0, *self._ahead_ms[LEDGER])

    def slowest_ms(self) -> int:
        """The time by whichever clock is behind the others."""
        return now_ms() + min(0, *self._ahead_ms[LEDGER], *self._ahead_ms[ENGINE])

    def apart(self) -> list[str]:
        """Which clocks are more than a minute off."""
        return [which for which, ahead_ms in self._ahead_ms.items() if abs(_furthest(ahead_ms)) > APART_MS]

    def warnings(self) -> list[str]:
        """The same for people."""
        return [said(which, _furthest(self._ahead_ms[which])) for which in self.apart()]

    def require(self) -> None:
        """Raises `ClocksApart` for the ledger's clock. An engine's is asked about in the scripts that promise by it."""
        if LEDGER in self.apart():
            raise ClocksApart(said(LEDGER, _furthest(self._ahead_ms[LEDGER])))


def said(which: str, ahead_ms: int) -> str:
    """One sentence for people."""
    direction = "ahead of" if ahead_ms > 0 else "behind"
    apart = f"The clock of {which} is {abs(ahead_ms) / 1000:.0f} s {direction} this process's."
    return f"{apart} Nothing is sold until they are within {APART_MS // 1000} s; what is held stays held."


async def redis_ms(node: Redis) -> int:
    """One process's clock."""
    seconds, microseconds = await node.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def _ahead_ms(ask: Callable[[], Awaitable[Any]]) -> int:
    """By how much at least, whenever between question and answer the other was read; 0 if they may be the same."""
    before_ms = now_ms()
    there_ms = int(await ask())
    after_ms = now_ms()
    return there_ms - after_ms if there_ms > after_ms else min(0, there_ms - before_ms)


def _furthest(ahead_ms: list[int]) -> int:
    return max(ahead_ms, key=abs, default=0)
