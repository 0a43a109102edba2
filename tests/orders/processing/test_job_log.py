"""The log of finished jobs is written soon, and nothing wakes the process while there is nothing to write."""

import asyncio
from datetime import timedelta
from typing import Any

from pgqueuer.core import buffers

from services.orders.processing.job_queue import JobLogBuffer
from tests.support.wait import wait_until


class JobLog:
    """Keeps what is written; fails `failures` times first."""

    def __init__(self, failures: int = 0) -> None:
        self.written: list[Any] = []
        self._failures = failures

    async def log_jobs(self, entries: list[Any]) -> None:
        if self._failures:
            self._failures -= 1
            raise ConnectionError
        self.written += entries


async def test_an_idle_log_sets_no_timer() -> None:
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    before = set(timers)
    async with buffers.JobStatusLogBuffer(max_size=10, repository=JobLog()):
        await asyncio.sleep(0)
        assert set(timers) <= before


async def test_what_is_logged_is_written_soon_also_after_a_failure_and_at_the_end() -> None:
    log = JobLog(failures=2)
    entries: list[Any] = ["one", "two", "three"]
    async with JobLogBuffer(max_size=10, repository=log, timeout=timedelta(seconds=0.01)) as buffer:
        await buffer.add(entries[0])
        await buffer.add(entries[1])
        await wait_until(lambda: log.written == entries[:2])
        await buffer.add(entries[2])
    assert log.written == entries
