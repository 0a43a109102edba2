"""Group commit: batches grow with the load, items fail alone, and the number of waiting items is bounded.

Single flight: one request for concurrent callers, bounded in number, independent of callers that leave.

Cached reads: its answer is kept for a moment, and longer if it took long.
"""

import asyncio

import pytest

from shared.concurrency.coalescing import LATE_S, CachedReads, GroupCommit, SingleFlight
from shared.errors.problems import Overloaded, SoldOut, Unavailable
from tests.support.wait import wait_until


class BlockedWorker:
    """A batch worker that waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, items: list[int]):
        self.batches.append(items)
        await self.go.wait()
        return [SoldOut() if item < 0 else item * 2 for item in items]


@pytest.fixture
def worker() -> BlockedWorker:
    return BlockedWorker()


@pytest.fixture
def group(worker: BlockedWorker) -> GroupCommit[int, int]:
    return GroupCommit(worker, name="t", batch_max=10, waiting_max=100)


async def test_items_submitted_during_a_batch_make_the_next_batch(worker, group) -> None:
    first = asyncio.create_task(group.submit(1))
    await wait_until(lambda: worker.batches)
    rest = [asyncio.create_task(group.submit(n)) for n in range(2, 8)]
    await asyncio.sleep(0)
    worker.go.set()
    assert await asyncio.gather(first, *rest) == [n * 2 for n in range(1, 8)]
    assert worker.batches == [[1], [2, 3, 4, 5, 6, 7]]


async def test_one_item_fails_alone(worker, group) -> None:
    worker.go.set()
    first, failed, third = await asyncio.gather(*(group.submit(n) for n in (1, -1, 3)), return_exceptions=True)
    assert (first, type(failed), third) == (2, SoldOut, 6)


async def test_a_batch_that_raises_fails_every_item() -> None:
    async def broken(items: list[int]) -> list[int]:
        raise ConnectionError("gone")

    group = GroupCommit(broken, name="t", batch_max=10, waiting_max=100)
    answers = await asyncio.gather(group.submit(1), group.submit(2), return_exceptions=True)
    assert all(isinstance(answer, ConnectionError) for answer in answers)


async def test_items_over_the_limit_are_refused_at_once(worker) -> None:
    group = GroupCommit(worker, name="t", batch_max=1, waiting_max=2)
    tasks = [asyncio.create_task(group.submit(0))]
    await wait_until(lambda: worker.batches)
    tasks += [asyncio.create_task(group.submit(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(group.submit(3)))
    await asyncio.sleep(0)
    is_refused_at_once = tasks[-1].done()
    worker.go.set()
    *answers, refused = await asyncio.gather(*tasks, return_exceptions=True)
    assert (answers, is_refused_at_once) == ([0, 2, 4], True)
    assert isinstance(refused, Overloaded)


async def test_a_cancelled_caller_does_not_cancel_the_batch(worker, group) -> None:
    cancelled, other = asyncio.create_task(group.submit(1)), asyncio.create_task(group.submit(2))
    await wait_until(lambda: worker.batches)
    cancelled.cancel()
    worker.go.set()
    await wait_until(other.done)
    assert await other == 4


async def test_closing_finishes_waiting_items_and_refuses_later_ones(worker, group) -> None:
    waiting = asyncio.create_task(group.submit(1))
    await wait_until(lambda: worker.batches)
    worker.go.set()
    await group.close()
    assert await waiting == 2
    with pytest.raises(Unavailable):
        await group.submit(2)


class WorkerByBatch:
    """A batch worker whose batches end one by one, each by its event in `ends`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.ends: list[asyncio.Event] = []

    async def __call__(self, items: list[int]):
        self.batches.append(items)
        self.ends.append(end := asyncio.Event())
        await end.wait()
        return items


async def group_with_batch_in_flight(
    worker: WorkerByBatch, *, batch_max: int = 10
) -> tuple[GroupCommit[int, int], list[asyncio.Task[int]]]:
    """A group that may have two batches in flight, with the first in flight."""
    group: GroupCommit[int, int] = GroupCommit(worker, name="t", batch_max=batch_max, waiting_max=100, in_flight_max=2)
    first = asyncio.create_task(group.submit(0))
    await wait_until(lambda: worker.batches)
    return group, [first]


async def test_items_wait_for_one_large_batch_rather_than_starting_two() -> None:
    group, tasks = await group_with_batch_in_flight(worker := WorkerByBatch())
    tasks += [asyncio.create_task(group.submit(n)) for n in range(1, 6)]
    await asyncio.sleep(LATE_S / 4)
    assert worker.batches == [[0]]
    worker.ends[0].set()
    await wait_until(lambda: len(worker.batches) == 2)
    assert worker.batches[1] == [1, 2, 3, 4, 5]
    worker.ends[1].set()
    await asyncio.gather(*tasks)


async def test_a_late_batch_does_not_hold_up_the_next_one() -> None:
    """Once it has ended, large batches start again."""
    group, tasks = await group_with_batch_in_flight(worker := WorkerByBatch())
    tasks.append(asyncio.create_task(group.submit(1)))
    await wait_until(lambda: len(worker.batches) == 2)
    worker.ends[1].set()
    assert await tasks[1] == 1
    tasks.append(asyncio.create_task(group.submit(2)))  # the first is still late
    await wait_until(lambda: len(worker.batches) == 3)
    tasks += [asyncio.create_task(group.submit(n)) for n in (3, 4)]
    await asyncio.sleep(0)
    worker.ends[0].set()
    assert await tasks[0] == 0
    await asyncio.sleep(LATE_S / 4)
    assert worker.batches == [[0], [1], [2]], "items wait while the batch in flight is not late"
    worker.ends[2].set()
    await wait_until(lambda: len(worker.batches) == 4)
    assert worker.batches[3] == [3, 4]
    worker.ends[3].set()
    await asyncio.gather(*tasks)


async def test_a_full_batch_starts_at_once() -> None:
    group, tasks = await group_with_batch_in_flight(worker := WorkerByBatch(), batch_max=3)
    tasks += [asyncio.create_task(group.submit(n)) for n in range(1, 4)]
    await asyncio.sleep(LATE_S / 4)
    assert worker.batches == [[0], [1, 2, 3]]
    for end in worker.ends:
        end.set()
    await asyncio.gather(*tasks)


async def test_a_submission_at_the_moment_the_last_batch_ends_is_not_forgotten() -> None:
    async def worker(items: list[int]) -> list[int]:
        return items

    group: GroupCommit[int, int] = GroupCommit(worker, name="again", batch_max=4, waiting_max=4)
    async with asyncio.timeout(2):
        assert [await group.submit(i) for i in range(20)] == list(range(20))
        await group.close()


@pytest.mark.parametrize("rests", [True, False])
async def test_a_group_that_rests_gathers_what_comes_soon_after_a_batch(rests: bool) -> None:
    batches: list[list[int]] = []

    async def work(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(0.02)
        return items

    group = GroupCommit(work, name="t", batch_max=10, waiting_max=100, rests=rests)
    first = group.enqueue(1)
    assert batches == []
    await first
    for n in (2, 3):
        group.enqueue(n)
        await asyncio.sleep(0.005)
    full = [group.enqueue(n) for n in range(4, 12)]
    await asyncio.gather(*full)
    assert [len(batch) for batch in batches] == ([1, 10] if rests else [1, 1, 9])
    await group.close()


async def test_a_batch_that_was_emptied_while_it_rested_is_none() -> None:
    """A second batch that is full starts beside one that rests, and takes what that one waits with."""
    batches: list[list[int]] = []

    async def work(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(0.01)
        return items

    group = GroupCommit(work, name="t", batch_max=3, waiting_max=100, in_flight_max=2, rests=True)
    await group.enqueue(0)
    resting = group.enqueue(1)
    await asyncio.sleep(0.005)
    await asyncio.gather(resting, group.enqueue(2), group.enqueue(3))
    await asyncio.sleep(0.06)
    assert batches == [[0], [1, 2, 3]]


class Source:
    """Counts its reads; each takes `takes_s` on the test's own clock."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.now_s, self.takes_s, self.reads = 0.0, takes_s, 0

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        self.now_s += self.takes_s
        return self.reads


async def test_twenty_who_ask_at_once_share_one_read_a_second() -> None:
    source = Source()
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10, timer=lambda: source.now_s)
    for second in range(1, 4):
        for _ in range(5):
            assert await asyncio.gather(*(cached.get("key", source.read) for _ in range(20))) == [second] * 20
        source.now_s = second


@pytest.mark.parametrize(("passed_s", "reads"), [(17.9, 1), (18.1, 2)])
async def test_a_slow_read_is_under_way_at_most_a_tenth_of_the_time(passed_s: float, reads: int) -> None:
    source = Source(takes_s=2)
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10, share_max=0.1, timer=lambda: source.now_s)
    await cached.get("key", source.read)
    source.now_s += passed_s
    assert await cached.get("key", source.read) == reads


async def test_a_failed_read_is_not_kept() -> None:
    async def fail() -> int:
        raise ConnectionError

    source = Source()
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10)
    with pytest.raises(ConnectionError):
        await cached.get("key", fail)
    assert await cached.get("key", source.read) == 1


async def test_reports_wait_for_their_turn_instead_of_being_refused() -> None:
    running = most = 0

    async def read() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1

    cached: CachedReads[int] = CachedReads.for_reports()
    assert await asyncio.gather(*(cached.get(str(key), read) for key in range(20))) == [1] * 20
    assert most == 4
    asked = await asyncio.gather(*(cached.get(f"other {key}", read) for key in range(101)), return_exceptions=True)
    assert [type(each) for each in asked if each != 1] == [Overloaded]


async def test_invented_keys_do_not_keep_known_ones_from_being_read() -> None:
    go_on = asyncio.Event()

    async def read() -> str:
        await go_on.wait()
        return "read"

    cached: CachedReads[str] = CachedReads(kept_s=1, keys_max=10, in_flight_max=2)
    invented = [asyncio.create_task(cached.get(f"invented-{n}", read)) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await cached.get("invented-2", read)
    known = asyncio.create_task(cached.get("show", read, known=True))
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*invented, known) == ["read"] * 3


async def test_concurrent_callers_share_one_request_that_survives_a_cancelled_caller() -> None:
    flights: SingleFlight[str] = SingleFlight()
    requests, answer = 0, asyncio.Event()

    async def request() -> str:
        nonlocal requests
        requests += 1
        await answer.wait()
        return "answer"

    callers = [asyncio.create_task(flights.run("key", request)) for _ in range(10)]
    await asyncio.sleep(0)
    callers[0].cancel()
    answer.set()
    assert await asyncio.gather(*callers[1:]) == ["answer"] * 9
    assert (requests, len(flights)) == (1, 0)


async def test_more_keys_than_the_limit_are_refused_and_close_cancels_the_rest() -> None:
    flights: SingleFlight[object] = SingleFlight(in_flight_max=2)
    started = [flights.start(key, asyncio.Event().wait) for key in ("a", "b")]
    with pytest.raises(Overloaded):
        await flights.run("c", lambda: asyncio.sleep(0))
    assert flights.start("a", lambda: asyncio.sleep(0)) is started[0]
    await flights.close()
    assert all(task.cancelled() for task in started)
