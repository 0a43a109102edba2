"""Background loops of a service: started together, kept running through failures, stopped within a deadline.

A loop may rest while its process has nothing to do: it then runs rarely, and is woken by whatever comes in. What wakes
it comes from its own process, because every loop that rests does work that any process of the service may do: the one
that took the request does it, and the rare runs of the others cover for one that died.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Self

from shared.concurrency.tasks import stop
from shared.runtime.logging import get_logger
from shared.runtime.metrics import LOOP_FAILURES

log = get_logger("onsale.loops")
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
CLOCK_TOLERANCE_S = 0.005
LINGER_S = 6.0  # longer than a dead process has the lock of a relay, for which others then still look


class Activity:
    """Whether a process has something to do: it has until `LINGER_S` after the last `stir`.

    Requests stir, and so does a loop that found something which waits or becomes due soon.
    """

    def __init__(self) -> None:
        self._until_s = time.monotonic() + LINGER_S
        self._resting: set[asyncio.Event] = set()

    @property
    def silent(self) -> bool:
        return time.monotonic() >= self._until_s

    def stir(self) -> None:
        """Something came in, or is still to be done: every loop runs at its own pace again."""
        self._until_s = time.monotonic() + LINGER_S
        for woken in self._resting:
            woken.set()

    async def rest(self, seconds: float) -> bool:
        """Returns when something stirs, after `seconds` at the latest; whether it was stirred."""
        woken = asyncio.Event()
        self._resting.add(woken)
        try:
            async with asyncio.timeout(seconds):
                return await woken.wait()
        except TimeoutError:
            return False
        finally:
            self._resting.discard(woken)


ACTIVITY = Activity()


class Loops:
    """`async with Loops() as loops:` leaving the context stops every loop, the last started first."""

    def __init__(self, *, stop_deadline_s: float = 3.0) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_deadline_s = stop_deadline_s

    def every(
        self, interval_s: float, work: Callable[[], Awaitable[object]], *, name: str, idle_s: float = 0.0
    ) -> None:
        """Runs `work` at once and then every `interval_s` seconds from start to start; while the process has nothing to
        do, every `idle_s` seconds if that is longer. Woken from that rest, it runs within one interval, at a random
        moment of it: as soon as if it had not rested, and not at once with all others. A failure is logged, counted and
        followed by a growing pause.
        """
        LOOP_FAILURES.labels(name)
        self._tasks.append(asyncio.create_task(self._every(interval_s, work, name, idle_s), name=name))

    def keep(self, run: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Keeps `run` running: when it returns or raises, it is started again after a growing pause."""
        self.every(0.0, run, name=name)

    async def _every(
        self, interval_s: float, work: Callable[[], Awaitable[object]], name: str, idle_s: float = 0.0
    ) -> None:
        clock = asyncio.get_running_loop().time
        pause_s = RETRY_FIRST_S
        while True:
            started = clock()
            try:
                await work()
                now_s, pause_s = clock(), RETRY_FIRST_S
                wait_s, rest_s = max(0.0, started + interval_s - now_s), started + idle_s - now_s
                if ACTIVITY.silent:
                    wait_s, rest_s = _until_full_second(now_s, wait_s), _until_full_second(now_s, rest_s)
            except Exception:
                if clock() - started > RETRY_MAX_S:
                    pause_s = RETRY_FIRST_S  # it ran well for a while: this is another failure, not the last one again
                log.exception("loop.failed", loop=name, retry_in_s=pause_s)
                LOOP_FAILURES.labels(name).inc()
                wait_s, pause_s, rest_s = pause_s, min(RETRY_MAX_S, pause_s * 2), 0.0
            if rest_s <= wait_s or not ACTIVITY.silent:
                await asyncio.sleep(wait_s)
            elif await ACTIVITY.rest(rest_s):
                await asyncio.sleep(random.uniform(0, interval_s))  # noqa: S311 - spreads the loops

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in reversed(self._tasks):
            await stop([task], within_s=self._stop_deadline_s)


def _until_full_second(now_s: float, pause_s: float) -> float:
    """The pause, shortened to end with a second of the clock if it reaches one: an idle process then wakes once for all
    its loops.
    """
    end_s = math.floor(now_s + pause_s + CLOCK_TOLERANCE_S)
    return end_s - now_s if end_s > now_s else pause_s
