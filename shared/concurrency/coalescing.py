"""Work that concurrent callers share: a group commit, a single flight, a read that is kept for a moment.

Group commit: the next batch consists of whatever arrived while the last one was in flight. A single caller is a batch
of one and starts at once; under load batches grow by themselves. One large batch costs half of two, so a second one
starts beside the first only when that is late (it may wait for a row lock) or when the second is full. For the same
reason a group that `rests` waits three times as long as its last batch took, at most `REST_MAX_S`, before the next one,
unless that is full: it is for work in the background, for which no request waits. The queue is bounded: when it is
full, a caller is refused at once. Keyed batches are group commits by key: what fans ask about one event goes to another
service as one call.

Single flight: concurrent callers who need the same key share one request. Cached reads: they wait for one read, and its
result is kept for a moment. However many ask, a key is read at most once in `kept_s`, and for at most `share_max` of
the time: a result that took long is kept longer.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, nullcontext
from contextvars import Context
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from cachetools import LRUCache, TLRUCache

from shared.concurrency.background import stop
from shared.errors.problems import Overloaded, Unavailable
from shared.runtime import tracing
from shared.runtime.logging import request_fields
from shared.runtime.metrics import BATCH_SECONDS, BATCHES
from shared.runtime.tracing import reason_of, sale_log

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

# -- group commit ------------------------------------------------------------------------------------------------------

LATE_S = 0.1
REST_SHARE, REST_MAX_S = 3, 0.05
KEYED_MAX = 1_000


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items in order; the last may be shorter."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk


async def by_halves(
    work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], items: Sequence[Item]
) -> list[Answer]:
    """Works on two halves of a batch that failed as a whole. When `work` halves again what fails, one bad item in a
    hundred costs some dozen calls instead of a hundred.
    """
    middle = len(items) // 2
    return [*await work(items[:middle]), *await work(items[middle:])]


class GroupCommit(Generic[Item, Answer]):
    """Runs `work` on batches of items.

    `work` returns one result per item, in order. A result that is an exception is raised to that item's caller alone;
    an exception from `work` itself is raised to every caller of the batch. A callable `batch_max` is called before each
    batch; `in_flight_max` bounds the number of concurrent batches. A batch waits `linger_s` for others to join it.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Answer | BaseException]]],
        *,
        name: str,
        batch_max: int | Callable[[], int],
        waiting_max: int,
        in_flight_max: int = 1,
        rests: bool = False,
        linger_s: float = 0.0,
    ) -> None:
        self._work, self._rests, self._linger_s = work, rests, linger_s
        self._batch_max = batch_max if callable(batch_max) else lambda: batch_max
        self._waiting_max = waiting_max
        self._in_flight_max = in_flight_max
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._running: dict[asyncio.Task[None], float] = {}  # when its batch started
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._rests_until_s = 0.0
        self._name, self._traced = name, list[str]()  # the traced members that wait
        self._logged, self._since_s = list[dict[str, str]](), 0.0  # the logged ones, and since when the first waits
        self._size, self._seconds = BATCHES.labels(name), BATCH_SECONDS.labels(name)

    async def submit(self, item: Item) -> Answer:
        """The result for `item`. Raises `Overloaded` at once when too many wait already."""
        return await self.enqueue(item)

    def enqueue(self, item: Item) -> "asyncio.Future[Answer]":
        """As `submit`, for a caller who does not wait in a task."""
        if self._closed:
            raise Unavailable
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded
        if tracing.tracer is not None and (traceparent := tracing.traceparent()):
            self._traced.append(traceparent)
        if sale_log.on:
            self._since_s = self._since_s if self._waiting else asyncio.get_running_loop().time()
            if sale_log.in_request():
                self._logged.append(request_fields.get())
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._running:
            self._start()
        elif len(self._running) < self._in_flight_max:
            self._start_or_schedule()
        return future

    def _start_or_schedule(self) -> None:
        """Starts another batch beside the one in flight if it may, else sets a timer for when it may."""
        if self._may_start_another(last_s := max(self._running.values())):
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(last_s + LATE_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting and 0 < len(self._running) < self._in_flight_max:
            self._start_or_schedule()

    def _may_start_another(self, last_s: float) -> bool:
        """Whether a batch may start although one started at `last_s`: it would be full, or that one is late."""
        return len(self._waiting) >= self._batch_max() or asyncio.get_running_loop().time() - last_s >= LATE_S

    def _start(self) -> None:
        task = asyncio.create_task(self._drain(), context=Context())  # a batch belongs to no request
        self._running[task] = now_s = asyncio.get_running_loop().time()
        self._rests_until_s = max(self._rests_until_s, now_s + self._linger_s)
        task.add_done_callback(lambda ended: self._running.pop(ended, None))

    async def _drain(self) -> None:
        clock, me = asyncio.get_running_loop().time, cast("asyncio.Task[None]", asyncio.current_task())
        await asyncio.sleep(0)  # callers that are ready in this tick of the event loop join the batch
        while self._waiting:
            if (rest_s := self._rests_until_s - clock()) > 0 and len(self._waiting) < self._batch_max():
                await asyncio.sleep(rest_s)
                continue  # another batch may have taken what waited
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_max()))]
            self._size.observe(len(batch))
            self._running[me] = clock()
            items = [item for item, _ in batch]
            answers = await (self._answers_logged(items) if sale_log.on else self._answers_traced(items))
            _deliver(batch, answers)
            took_s = clock() - self._running[me]
            self._seconds.observe(took_s)
            if self._rests and not self._closed:
                self._rests_until_s = clock() + min(REST_MAX_S, REST_SHARE * took_s)
            last_s = max((left_s for task, left_s in self._running.items() if task is not me), default=None)
            if last_s is not None and not self._may_start_another(last_s):
                break  # the batch in flight takes the rest when it returns
        # here, not in the callback: a `submit` in between would see the task as running and wait for ever
        self._running.pop(me, None)

    async def _answers_logged(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        requests, self._logged = self._logged, []  # a few may belong to the next batch
        now_s = asyncio.get_running_loop().time()
        waited_s, self._since_s = now_s - (self._since_s or now_s), now_s
        with sale_log.batch(self._name, len(items), requests=requests, waited_s=waited_s) as outcomes:
            answers = await self._answers_traced(items)
            outcomes.update(reason_of(each) if isinstance(each, BaseException) else "ok" for each in answers)
            return answers

    async def _answers_traced(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        if not self._traced:
            return await self._answers(items)
        (first, *others), self._traced = self._traced, []  # linked to the others; a few may belong to the next batch
        with tracing.span(f"batch {self._name}", parent=first, links=others, members=len(items)):
            return await self._answers(items)

    async def _answers(self, items: list[Item]) -> Sequence[Answer | BaseException]:
        try:
            answers = await self._work(items)
        except asyncio.CancelledError:
            return [Unavailable()] * len(items)
        except Exception as failed:  # noqa: BLE001 - raised to every caller
            return [failed] * len(items)
        assert len(answers) == len(items), "work must return one result per item"
        return answers

    async def close(self) -> None:
        """Finishes what waits and refuses new items."""
        self._closed = True
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)


class GroupCommits(AsyncExitStack):
    """Several group commits with the same limits. Use inside `async with`; leaving it finishes what waits."""

    def __init__(self, *, batch_max: int, waiting_max: int, in_flight_max: int) -> None:
        super().__init__()
        self._limits = {"batch_max": batch_max, "waiting_max": waiting_max, "in_flight_max": in_flight_max}

    def grouped(
        self, name: str, work: Callable[[list[Item]], Awaitable[Sequence[Answer | BaseException]]], *,
        rests: bool = False,
    ) -> Callable[[Item], Awaitable[Answer]]:  # fmt: skip
        """`work` for one item: concurrent calls share a batch."""
        group: GroupCommit[Item, Answer] = GroupCommit(work, name=name, rests=rests, **self._limits)
        self.push_async_callback(group.close)
        return group.submit


class KeyedBatches(Generic[Key, Item, Answer]):
    """One group commit per key, for the `KEYED_MAX` most recently used keys; one that is dropped still finishes."""

    def __init__(
        self,
        work: Callable[[Key, list[Item]], Awaitable[Sequence[Answer | BaseException]]],
        *,
        name: str,
        batch_max: int,
        waiting_max: int,
        in_flight_max: int = 2,
    ) -> None:
        self._work, self._name, self._batch_max = work, name, batch_max
        self._waiting_max, self._in_flight_max = waiting_max, in_flight_max
        self._commits: LRUCache[Key, GroupCommit[Item, Answer]] = LRUCache(KEYED_MAX)

    async def submit(self, key: Key, item: Item) -> Answer:
        """The result for `item`. Raises `Overloaded` at once when too many wait under this key."""
        return await self.enqueue(key, item)

    def enqueue(self, key: Key, item: Item) -> "asyncio.Future[Answer]":
        """As `submit`, for a caller who does not wait in a task."""
        commit = self._commits.get(key)
        if commit is None:
            work = partial(self._work, key)
            commit = self._commits[key] = GroupCommit(
                work, name=self._name, batch_max=self._batch_max, waiting_max=self._waiting_max,
                in_flight_max=self._in_flight_max,
            )  # fmt: skip
        return commit.enqueue(item)

    async def close(self) -> None:
        """Finishes what waits and refuses new items."""
        for commit in self._commits.values():
            await commit.close()


def _deliver(batch: list[tuple[Item, "asyncio.Future[Answer]"]], answers: Sequence[Answer | BaseException]) -> None:
    for (_, future), answer in zip(batch, answers, strict=True):
        if future.done():
            continue  # its caller was cancelled
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


# -- single flight -----------------------------------------------------------------------------------------------------


class SingleFlight(Generic[Result]):
    """At most one request per key, and at most `in_flight_max` in all, are under way."""

    def __init__(self, *, in_flight_max: int | None = None) -> None:
        self._in_flight_max = in_flight_max
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    async def run(self, key: str, request: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False) -> Result:
        """The result of the request under way for this key, or of a new one. Cancelling a caller does not cancel the
        request. A `known` key, of which there are only so many, is never refused for those that callers invent. Raises
        `Overloaded`, and what the request raises.
        """
        return await asyncio.shield(self.start(key, request, known=known))

    def start(
        self, key: str, request: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False
    ) -> asyncio.Task[Result]:
        """As `run`, without waiting for the result."""
        task = self._tasks.get(key)
        if task is None:
            if not known and self._in_flight_max is not None and len(self._tasks) >= self._in_flight_max:
                raise Overloaded
            task = self._tasks[key] = asyncio.create_task(request(), name=f"single flight {key}")
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    def __len__(self) -> int:
        """How many requests are under way."""
        return len(self._tasks)

    async def close(self) -> None:
        """Cancels all requests."""
        await stop(self._tasks.values())


# -- cached reads ------------------------------------------------------------------------------------------------------

REPORT_KEPT_S, REPORT_SHARE_MAX, REPORTS_MAX = 1.0, 0.1, 200
REPORTS_AT_ONCE, REPORTS_IN_FLIGHT_MAX = 4, 100


class _Kept(NamedTuple, Generic[Result]):
    result: Result
    for_s: float


class CachedReads(Generic[Result]):
    """At most `keys_max` results are kept. At most `in_flight_max` reads are under way, others are refused; at most
    `at_once` of them run, the rest wait for their turn.
    """

    def __init__(
        self, *, kept_s: float, keys_max: int, in_flight_max: int | None = None, at_once: int | None = None,
        share_max: float = 1.0, timer: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._turns = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self._kept_s, self._share_max, self._timer = kept_s, share_max, timer
        self._kept: TLRUCache[str, _Kept[Result]] = TLRUCache(keys_max, _expires, timer=timer)
        self._flights: SingleFlight[Result] = SingleFlight(in_flight_max=in_flight_max)

    @classmethod
    def for_reports(cls) -> "CachedReads[Result]":
        """Of reports for operators: kept for a second or, if reading took long, ten times as long."""
        return cls(
            kept_s=REPORT_KEPT_S, keys_max=REPORTS_MAX, in_flight_max=REPORTS_IN_FLIGHT_MAX,
            at_once=REPORTS_AT_ONCE, share_max=REPORT_SHARE_MAX,
        )  # fmt: skip

    async def get(self, key: str, read: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False) -> Result:
        """The kept result of this key, or that of the read under way, or of a new one. A failed read is not kept; a
        `known` key is never refused for those that callers invent. Raises `Overloaded`, and what the read raises.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept.result
        return await self._flights.run(key, partial(self._read, key, read), known=known)

    async def _read(self, key: str, read: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async with self._turns:
            begun_s = self._timer()
            result = await read()
        self._kept[key] = _Kept(result, max(self._kept_s, (self._timer() - begun_s) * (1 / self._share_max - 1)))
        return result

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._flights.close()


def _expires(_: str, kept: _Kept[Any], now_s: float) -> float:
    return now_s + kept.for_s
