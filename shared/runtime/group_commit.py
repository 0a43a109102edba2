"""Group commit: the next batch is whatever arrived while the last one was on its way.

No artificial delay: alone, a caller is a batch of one and goes at once; under load batches grow by themselves. One
large batch costs half of two, so another sets off beside one that is on its way only when that one is late (it may wait
for somebody's row), or when the next is full. Bounded: when too many wait, a newcomer is refused in microseconds.

Anything in lists of at most so many, for callers that send or read a bounded part at a time.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from shared.runtime.metrics import BATCHES
from shared.web.problems import Overloaded, Unavailable

T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """In their order; the last may be shorter."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk


Item = TypeVar("Item")
Answer = TypeVar("Answer")
LATE_S = 0.1


class GroupCommit(Generic[Item, Answer]):
    """Runs `work` on batches. `work` answers one result per item, in order; a result that is an exception is raised to
    that item's caller alone, and an exception from `work` itself is raised to the whole batch. `batch_max` may be asked
    anew before each batch; `in_flight_max` bounds the batches beside one that is late.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Answer | BaseException]]],
        *,
        name: str,
        batch_max: int | Callable[[], int],
        waiting_max: int,
        in_flight_max: int = 1,
    ) -> None:
        self._work = work
        self._batch_max = batch_max if callable(batch_max) else lambda: batch_max
        self._waiting_max = waiting_max
        self._in_flight_max = in_flight_max
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._running: dict[asyncio.Task[None], float] = {}  # since when its batch is on its way
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False
        self._size = BATCHES.labels(name)

    async def submit(self, item: Item) -> Answer:
        """The answer for `item`. Raises `Overloaded` at once when too many wait already."""
        if self._closed:
            raise Unavailable
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._running:
            self._start()
        elif len(self._running) < self._in_flight_max:
            self._beside()
        return await future

    def _beside(self) -> None:
        """Whoever waits goes now if that is time, or somebody looks when it may be."""
        if self._is_time_beside(last_s := max(self._running.values())):
            self._start()
        elif self._looking is None:
            self._looking = asyncio.get_running_loop().call_at(last_s + LATE_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if self._waiting and 0 < len(self._running) < self._in_flight_max:
            self._beside()

    def _is_time_beside(self, last_s: float) -> bool:
        """Whether the next batch goes although one left at that time."""
        return len(self._waiting) >= self._batch_max() or asyncio.get_running_loop().time() - last_s >= LATE_S

    def _start(self) -> None:
        task = asyncio.create_task(self._drain())
        self._running[task] = asyncio.get_running_loop().time()
        task.add_done_callback(lambda ended: self._running.pop(ended, None))

    async def _drain(self) -> None:
        clock, me = asyncio.get_running_loop().time, cast("asyncio.Task[None]", asyncio.current_task())
        await asyncio.sleep(0)  # whoever is ready in this turn of the loop rides along
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_max()))]
            self._size.observe(len(batch))
            self._running[me] = clock()
            _settle(batch, await self._answers([item for item, _ in batch]))
            last_s = max((left_s for task, left_s in self._running.items() if task is not me), default=None)
            if last_s is not None and not self._is_time_beside(last_s):
                break  # whoever is on its way takes the rest along
        # at once, not by the task's callback: a submit in between would see it running and wait for ever
        self._running.pop(me, None)

    async def _answers(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        try:
            answers = await self._work(items)
        except asyncio.CancelledError:
            return [Unavailable()] * len(items)
        except Exception as failed:  # noqa: BLE001 - it is every caller's to see
            return [failed] * len(items)
        assert len(answers) == len(items), "a batch must answer every member"
        return answers

    async def close(self) -> None:
        """Finishes what waits, refuses what comes after."""
        self._closed = True
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)


def _settle(batch: list[tuple[Item, "asyncio.Future[Answer]"]], answers: Sequence[Answer | BaseException]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if future.done():
            continue  # its caller went away
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
