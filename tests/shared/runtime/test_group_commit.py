"""Group commit: batches grow by themselves, members fail alone, and what waits is bounded."""

import asyncio

import pytest

from shared.runtime.group_commit import LATE_S, GroupCommit
from shared.web.problems import Overloaded, SoldOut, Unavailable
from tests.support.wait import wait_until


class Work:
    """A batch worker that waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, items: list[int]):
        self.batches.append(items)
        await self.go.wait()
        return [SoldOut() if item < 0 else item * 2 for item in items]


async def test_the_next_batch_is_what_arrived_while_the_last_was_on_its_way() -> None:
    work = Work()
    group = GroupCommit(work, name="t", batch_max=10, waiting_max=100)
    first = asyncio.create_task(group.submit(1))
    await wait_until(lambda: work.batches)
    rest = [asyncio.create_task(group.submit(n)) for n in range(2, 8)]
    await asyncio.sleep(0)
    work.go.set()
    assert await asyncio.gather(first, *rest) == [n * 2 for n in range(1, 8)]
    assert work.batches == [[1], [2, 3, 4, 5, 6, 7]]


async def test_one_member_fails_alone() -> None:
    work = Work()
    work.go.set()
    group = GroupCommit(work, name="t", batch_max=10, waiting_max=100)
    answers = await asyncio.gather(*(group.submit(n) for n in (1, -1, 3)), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], SoldOut)
    assert answers[2] == 6


async def test_a_batch_that_raises_tells_every_member() -> None:
    async def broken(items: list[int]) -> list[int]:
        raise ConnectionError("gone")

    group = GroupCommit(broken, name="t", batch_max=10, waiting_max=100)
    answers = await asyncio.gather(group.submit(1), group.submit(2), return_exceptions=True)
    assert all(isinstance(answer, ConnectionError) for answer in answers)


async def test_too_many_are_refused_at_once() -> None:
    work = Work()
    group = GroupCommit(work, name="t", batch_max=1, waiting_max=2)
    tasks = [asyncio.create_task(group.submit(0))]
    await wait_until(lambda: work.batches)
    tasks += [asyncio.create_task(group.submit(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await group.submit(3)
    work.go.set()
    assert await asyncio.gather(*tasks) == [0, 2, 4]


async def test_a_caller_who_leaves_does_not_take_the_batch_along() -> None:
    work = Work()
    group = GroupCommit(work, name="t", batch_max=10, waiting_max=100)
    leaver, stayer = asyncio.create_task(group.submit(1)), asyncio.create_task(group.submit(2))
    await wait_until(lambda: work.batches)
    leaver.cancel()
    work.go.set()
    assert await stayer == 4


async def test_closing_finishes_what_waits_and_refuses_what_comes_after() -> None:
    work = Work()
    group = GroupCommit(work, name="t", batch_max=10, waiting_max=100)
    waiting = asyncio.create_task(group.submit(1))
    await wait_until(lambda: work.batches)
    work.go.set()
    await group.close()
    assert await waiting == 2
    with pytest.raises(Unavailable):
        await group.submit(2)


class Posts:
    """A batch worker whose batches are let go one by one."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.ends: list[asyncio.Event] = []

    async def __call__(self, items: list[int]):
        self.batches.append(items)
        self.ends.append(end := asyncio.Event())
        await end.wait()
        return items


async def one_on_its_way(work: Posts, *, batch_max: int = 10) -> tuple[GroupCommit[int, int], list[asyncio.Task[int]]]:
    """A group that may have two batches in flight, and has the first."""
    group: GroupCommit[int, int] = GroupCommit(work, name="t", batch_max=batch_max, waiting_max=100, in_flight_max=2)
    first = asyncio.create_task(group.submit(0))
    await wait_until(lambda: work.batches)
    return group, [first]


async def test_one_large_batch_goes_rather_than_two() -> None:
    group, tasks = await one_on_its_way(work := Posts())
    tasks += [asyncio.create_task(group.submit(n)) for n in range(1, 6)]
    await asyncio.sleep(LATE_S / 4)
    assert work.batches == [[0]]
    work.ends[0].set()
    await wait_until(lambda: len(work.batches) == 2)
    assert work.batches[1] == [1, 2, 3, 4, 5]
    work.ends[1].set()
    await asyncio.gather(*tasks)


async def test_nobody_waits_for_a_batch_that_is_late() -> None:
    """And once it is back, large batches go again."""
    group, tasks = await one_on_its_way(work := Posts())
    tasks.append(asyncio.create_task(group.submit(1)))
    await wait_until(lambda: len(work.batches) == 2)
    work.ends[1].set()
    assert await tasks[1] == 1
    tasks.append(asyncio.create_task(group.submit(2)))  # the first is still late
    await wait_until(lambda: len(work.batches) == 3)
    tasks += [asyncio.create_task(group.submit(n)) for n in (3, 4)]
    await asyncio.sleep(0)
    work.ends[0].set()
    assert await tasks[0] == 0
    await asyncio.sleep(LATE_S / 4)
    assert work.batches == [[0], [1], [2]], "the one on its way takes the rest along"
    work.ends[2].set()
    await wait_until(lambda: len(work.batches) == 4)
    assert work.batches[3] == [3, 4]
    work.ends[3].set()
    await asyncio.gather(*tasks)


async def test_a_full_batch_need_not_wait() -> None:
    group, tasks = await one_on_its_way(work := Posts(), batch_max=3)
    tasks += [asyncio.create_task(group.submit(n)) for n in range(1, 4)]
    await asyncio.sleep(LATE_S / 4)
    assert work.batches == [[0], [1, 2, 3]]
    for end in work.ends:
        end.set()
    await asyncio.gather(*tasks)
