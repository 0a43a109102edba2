"""Group commit: the next batch is whatever arrived while the last one was on its way.

No timer and no artificial delay: alone, a caller is a batch of one and goes at once; under load batches grow by
themselves. Bounded: when too many wait, a newcomer is refused in microseconds.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

from shared.problems import Overloaded, Unavailable
from shared.telemetry import BATCHES

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """Runs `work` on batches. `work` answers one result per item, in order; a result that is an exception is raised to
    that item's caller alone, and an exception from `work` itself is raised to the whole batch. `batch_max` may be asked
    anew before each batch.
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
        self._running: set[asyncio.Task[None]] = set()
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
        if len(self._running) < self._in_flight_max:
            self._start()
        return await future

    def _start(self) -> None:
        task = asyncio.create_task(self._drain())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _drain(self) -> None:
        await asyncio.sleep(0)  # whoever is ready in this turn of the loop rides along
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_max()))]
            self._size.observe(len(batch))
            _settle(batch, await self._answers([item for item, _ in batch]))
        # at once, not by the task's callback: a submit in between would see it running and wait for ever
        self._running.discard(cast("asyncio.Task[None]", asyncio.current_task()))

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
