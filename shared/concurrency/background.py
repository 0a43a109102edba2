"""Background loops of a service: started together, kept running through failures, stopped within a deadline.

A loop that found nothing doubles its pause, up to what its work allows; whoever writes something wakes the loops of its
service. That is always in its own process, because every loop that rests does work that any process of the service may
do: the one that wrote does it, and the rare runs of the others cover for one that died. A pause ends before the next
deadline that the work knows of. `stop` ends tasks; `to_the_end` lets none be ended.
"""

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Self, TypeVar

from shared.runtime.logging import get_logger
from shared.runtime.metrics import LOOP_FAILURES

T = TypeVar("T")

CANCEL_AGAIN_S = 0.1
STOP_WITHIN_S = 3.0


async def stop(tasks: Iterable[asyncio.Task[Any]], *, within_s: float = STOP_WITHIN_S) -> None:
    """Cancels the tasks and returns when all have ended, at the latest after `within_s`. What they raise is dropped.

    They are cancelled again and again: Python 3.11's `wait_for` loses a cancellation that arrives as its wait ends.
    """
    clock = asyncio.get_running_loop().time
    left, give_up_at = set(tasks), clock() + within_s
    while left and clock() < give_up_at:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits the work to its end, however often the caller is cancelled meanwhile; raises `CancelledError` then.

    For what must not be left half done. The work must end by itself.
    """
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled:
        raise cancelled
    return task.result()


log = get_logger("onsale.loops")
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
QUIET_S = 15.0  # the longest pause of work that has no deadline
QUIET_MAX_S = 60.0
CLOCK_TOLERANCE_S = 0.005
_wakes: defaultdict[str, set[asyncio.Event]] = defaultdict(set)


class Quiet(NamedTuple):
    """The result of work that found nothing: its loop may pause for so long. After less than its interval it runs as
    soon as that is over, with the other quiet loops of the process.
    """

    for_s: float = QUIET_S


Work = Callable[[], Awaitable[object]]


def wake(service: str) -> None:
    """Something was written, or is to be done soon: each loop of this service in this process runs within its interval,
    and at its own pace while it finds something.
    """
    for woken in _wakes[service]:
        woken.set()


class Loops:
    """`async with Loops(service) as loops:` leaving the context stops every loop, the last started first. What any of
    several services writes wakes them. Loops that are `held` begin with `start`.
    """

    def __init__(self, *services: str, stop_deadline_s: float = 3.0, held: bool = False) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._services, self._stop_deadline_s, self._started = services, stop_deadline_s, asyncio.Event()
        if not held:
            self.start()

    def start(self) -> None:
        """Lets held loops begin."""
        self._started.set()

    def every(self, interval_s: float, work: Work, *, name: str) -> None:
        """Runs `work` at once and then every `interval_s` seconds from start to start. When it returns `Quiet`, the
        pause doubles up to what that allows. A failure is logged, counted and followed by a growing pause.
        """
        LOOP_FAILURES.labels(name)
        self._tasks.append(asyncio.create_task(self._every(interval_s, work, name), name=name))

    def keep(self, run: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Keeps `run` running: when it returns or raises, it is started again after a growing pause."""
        self.every(0.0, run, name=name)

    async def _every(self, interval_s: float, work: Work, name: str) -> None:
        clock, woken = asyncio.get_running_loop().time, asyncio.Event()
        retry_s, quiet_s = RETRY_FIRST_S, interval_s
        await self._started.wait()
        for service in self._services:
            _wakes[service].add(woken)
        try:
            while True:
                woken.clear()
                started_s = clock()
                try:
                    found = await work()
                except Exception:
                    if clock() - started_s > RETRY_MAX_S:
                        retry_s = RETRY_FIRST_S  # it ran well for a while: this is another failure, not the last again
                    log.exception("loop.failed", loop=name, retry_in_s=retry_s)
                    LOOP_FAILURES.labels(name).inc()
                    await asyncio.sleep(retry_s)
                    retry_s, quiet_s = min(RETRY_MAX_S, retry_s * 2), interval_s
                    continue
                retry_s = RETRY_FIRST_S
                if not isinstance(found, Quiet):
                    quiet_s = interval_s
                    await asyncio.sleep(max(0.0, started_s + interval_s - clock()))
                    continue
                quiet_s, now_s = min(QUIET_MAX_S, 2 * quiet_s), clock()
                left_s = started_s + max(interval_s, min(quiet_s, found.for_s)) - now_s
                if await _is_woken(woken, _until_full_second(now_s, max(0.0, left_s))):
                    quiet_s = interval_s
                    await asyncio.sleep(_rest_of_interval_s(started_s + interval_s - clock(), interval_s))
        finally:
            for service in self._services:
                _wakes[service].discard(woken)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops every loop, the last started first."""
        for task in reversed(self._tasks):
            await stop([task], within_s=self._stop_deadline_s)


async def _is_woken(woken: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await woken.wait()
    except TimeoutError:
        return False


def _rest_of_interval_s(left_s: float, interval_s: float) -> float:
    """What is left of the interval. A loop that was woken after it waits for a random part of one: all of a service are
    woken at the same moment.
    """
    return left_s if left_s > 0 else random.uniform(0, interval_s)  # noqa: S311 - spreads the loops


def _until_full_second(now_s: float, pause_s: float) -> float:
    """The pause, shortened to end with a second of the clock if it reaches one: an idle process then wakes once for all
    its loops.
    """
    end_s = math.floor(now_s + pause_s + CLOCK_TOLERANCE_S)
    return end_s - now_s if end_s > now_s else pause_s


def retry_pause_s(tries: int, *, first_s: float, max_s: float) -> float:
    """The pause before the next try: doubled with each try, with jitter of half of it, so that failures of the same
    moment are not retried together.
    """
    doubled_s: float = first_s * 2 ** min(tries, 20)
    return min(max_s, doubled_s) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
