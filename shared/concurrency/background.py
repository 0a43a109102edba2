"""Background loops of a service: started together, kept running through failures, stopped within a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from shared.runtime.logging import get_logger
from shared.runtime.metrics import LOOP_FAILURES

log = get_logger("onsale.loops")
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
CANCEL_AGAIN_S = 0.1


class Loops:
    """`async with Loops() as loops:` leaving the context stops every loop, the last started first."""

    def __init__(self, *, stop_deadline_s: float = 3.0) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_deadline_s = stop_deadline_s

    def every(self, interval_s: float, work: Callable[[], Awaitable[object]], *, name: str) -> None:
        """Runs `work` at once and then every `interval_s` seconds from start to start. A failure is logged, counted and
        followed by a growing pause.
        """
        LOOP_FAILURES.labels(name)
        self._tasks.append(asyncio.create_task(self._every(interval_s, work, name), name=name))

    def keep(self, run: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Keeps `run` running: when it returns or raises, it is started again after a growing pause."""
        self.every(0.0, run, name=name)

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[object]], name: str) -> None:
        clock = asyncio.get_running_loop().time
        pause_s = RETRY_FIRST_S
        while True:
            started = clock()
            try:
                await work()
                pause_s = RETRY_FIRST_S
                wait_s = max(0.0, started + interval_s - clock())
            except Exception:
                if clock() - started > RETRY_MAX_S:
                    pause_s = RETRY_FIRST_S  # it ran well for a while: this is another failure, not the last one again
                log.exception("loop.failed", loop=name, retry_in_s=pause_s)
                LOOP_FAILURES.labels(name).inc()
                wait_s, pause_s = pause_s, min(RETRY_MAX_S, pause_s * 2)
            await asyncio.sleep(wait_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in reversed(self._tasks):
            clock = asyncio.get_running_loop().time
            give_up_at = clock() + self._stop_deadline_s
            while not task.done() and clock() < give_up_at:
                task.cancel()  # repeated: Python 3.11's `wait_for` loses one that arrives as its wait ends
                await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
