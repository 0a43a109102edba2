"""A table as a queue of work: fetch, execute, rescue.

`fetch` leases due rows in the database, `execute` works on one of them and writes its outcome under the lease. A
process that dies leaves its rows to others when their leases end (rescue), so work is done at least once. Work is never
cut off but by the end of the process.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from shared.concurrency.background import Quiet
from shared.concurrency.tasks import stop

Row = TypeVar("Row")
FETCH_S = 0.05
QUIET_S, SOON_S = 5.0, 6.0  # the longest pause between two polls; each must see rows that become due before the next


class LeasedQueue(Generic[Row]):
    """The work of one process: at most `workers_max` rows at once. `fetch` gets how many rows it may lease; fewer than
    that mean that no more are due. `execute` must not raise. `run` and `poll` are for two loops. `fetch` sets
    `has_soon` if rows become due in `SOON_S`: polls are rare while there are none.
    """

    def __init__(
        self, fetch: Callable[[int], Awaitable[Sequence[Row]]], execute: Callable[[Row], Coroutine[Any, Any, object]],
        *, workers_max: int,
    ) -> None:  # fmt: skip
        self._fetch, self._execute = fetch, execute
        self._workers_max = workers_max
        self._woken, self.has_soon = asyncio.Event(), True
        self._running: dict[asyncio.Task[Any], Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The rows in work."""
        return list(self._running.values())

    def wake(self) -> None:
        """Looks for due rows now instead of at the next poll."""
        self._woken.set()

    async def poll(self) -> Quiet | None:
        """Looks for due rows."""
        self.wake()
        return None if self.has_soon or self._running else Quiet(QUIET_S)

    async def run(self) -> None:
        """Runs until cancelled; rows in work are then left to their leases. Wakes within `FETCH_S` are one look."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                self._woken.clear()
                next_s = clock() + FETCH_S
                self.has_soon = False
                await self.run_once()
                if len(self._running) < self._workers_max:
                    await asyncio.sleep(next_s - clock())
                await self._woken.wait()
        finally:
            await stop(self._running)

    async def run_once(self) -> None:
        """Starts work on the rows that are due, as far as there are free workers."""
        while (free := self._workers_max - len(self._running)) > 0:
            due = await self._fetch(free)
            for row in due:
                self._start(row)
            if len(due) < free:
                return

    def _start(self, row: Row) -> None:
        self.has_soon = True
        task = asyncio.create_task(self._execute(row))
        self._running[task] = row
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        if len(self._running) >= self._workers_max:
            self.wake()
        del self._running[task]


def retry_pause_s(tries: int, *, first_s: float, max_s: float) -> float:
    """The pause before the next try: doubled with each try, with jitter of half of it, so that failures of the same
    moment are not retried together.
    """
    doubled_s: float = first_s * 2 ** min(tries, 20)
    return min(max_s, doubled_s) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
