"""Background loops: pauses after failures double up to a limit; loops that find nothing pause, and are woken.

`stop` ends tasks that lose a cancellation, and gives up on those that refuse; `to_the_end` lets none be ended.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from shared.concurrency import background
from shared.concurrency import background as tasks_module
from shared.concurrency.background import (
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Loops,
    Quiet,
    _rest_of_interval_s,
    _until_full_second,
    retry_pause_s,
    stop,
    to_the_end,
    wake,
)
from tests.support.wait import wait_until


@pytest.mark.parametrize(("ran_s", "last_pause_s"), [(0.0, RETRY_FIRST_S * 8), (RETRY_MAX_S + 1, RETRY_FIRST_S)])
async def test_only_failures_in_a_row_make_the_pause_longer(
    monkeypatch: pytest.MonkeyPatch, ran_s: float, last_pause_s: float
) -> None:
    pauses: list[float] = []
    times: Iterator[float] = iter([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0 + ran_s, 20.0, 20.0])

    class Clock:
        time = staticmethod(lambda: next(times))

    async def fails() -> None:
        raise RuntimeError

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: Clock)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await Loops()._every(0.0, fails, "test")
    assert pauses == [RETRY_FIRST_S, RETRY_FIRST_S * 2, RETRY_FIRST_S * 4, last_pause_s]


class Runs:
    """Counts its runs, which find nothing but in the first `finds` of them; from `fails_from` on each fails."""

    def __init__(self, *, finds: int = 0, for_s: float = 3600.0, fails_from: int = 1_000_000) -> None:
        self.count, self._finds, self._for_s, self._fails_from = 0, finds, for_s, fails_from

    async def run(self) -> Quiet | None:
        self.count += 1
        if self.count >= self._fails_from:
            raise RuntimeError
        return None if self.count <= self._finds else Quiet(self._for_s)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of loops that found nothing, which end at once."""
    found: list[float] = []

    async def is_woken(_: asyncio.Event, within_s: float) -> bool:
        found.append(within_s)
        await asyncio.sleep(0)
        return False

    monkeypatch.setattr(background, "_is_woken", is_woken)
    monkeypatch.setattr(background, "_until_full_second", lambda _, pause_s: pause_s)
    return found


async def test_each_pause_of_a_loop_that_finds_nothing_is_twice_the_last(pauses: list[float]) -> None:
    async with Loops() as loops:
        loops.every(0.25, Runs(for_s=3.0).run, name="test")
        await wait_until(lambda: len(pauses) >= 6)
    assert [round(pause_s, 1) for pause_s in pauses[:6]] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


async def test_what_is_due_soon_does_not_make_the_later_pauses_short(pauses: list[float]) -> None:
    due_s = iter([3600.0, 3600.0, 0.3, 3600.0, 3600.0])

    async def look() -> Quiet:
        return Quiet(next(due_s, 3600.0))

    async with Loops() as loops:
        loops.every(0.25, look, name="test")
        await wait_until(lambda: len(pauses) >= 4)
    assert [round(pause_s, 1) for pause_s in pauses[:4]] == [0.5, 1.0, 0.3, 4.0]


async def test_a_loop_that_found_something_begins_anew(pauses: list[float]) -> None:
    async with Loops() as loops:
        loops.every(0.01, (runs := Runs(finds=3)).run, name="test")
        await wait_until(lambda: runs.count >= 3)
        assert not pauses
        await wait_until(lambda: len(pauses) >= 2)
    assert pauses[:2] == pytest.approx([0.02, 0.04], abs=0.01)


async def test_a_pause_ends_with_what_is_due_but_not_before_the_interval(pauses: list[float]) -> None:
    async with Loops() as loops:
        loops.every(2.0, (runs := Runs(for_s=-5.0)).run, name="test")
        await wait_until(lambda: runs.count >= 2)
    assert round(pauses[0]) == 2


@pytest.mark.parametrize("service", ["queue", "inventory", "orders"])
async def test_a_loop_in_a_pause_is_woken_by_what_its_service_writes(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_until_full_second", lambda _, pause_s: pause_s)  # or a pause may be any shorter
    async with Loops("queue", "inventory") as loops:
        loops.every(0.02, (runs := Runs()).run, name="test")
        await wait_until(lambda: runs.count >= 5)  # the next pause is half a second and longer
        count = runs.count
        for _ in range(3):
            wake(service)
            await asyncio.sleep(0.04)
        assert (runs.count > count) is (service != "orders")


async def test_what_is_written_while_a_loop_looks_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, go_on, pause_begins_woken = asyncio.Event(), asyncio.Event(), list[bool]()

    async def look() -> Quiet:
        looks.set()
        await go_on.wait()
        return Quiet(3600.0)

    async def is_woken(woken: asyncio.Event, _: float) -> bool:
        pause_begins_woken.append(woken.is_set())
        return await woken.wait()

    monkeypatch.setattr(background, "_is_woken", is_woken)
    async with Loops("queue") as loops:
        loops.every(1.0, look, name="test")
        await looks.wait()
        wake("queue")
        go_on.set()
        await wait_until(lambda: pause_begins_woken)
    assert pause_begins_woken == [True]


async def test_a_loop_that_is_woken_again_and_again_runs_at_its_own_pace() -> None:
    async with Loops("queue") as loops:
        loops.every(0.2, (runs := Runs()).run, name="test")
        for _ in range(100):
            wake("queue")
            await asyncio.sleep(0.005)
    assert runs.count <= 5


async def test_a_failure_ends_a_pause() -> None:
    async with Loops() as loops:
        loops.every(0.01, (failing := Runs(fails_from=1)).run, name="failing")
        await wait_until(lambda: failing.count >= 3, timeout_s=5)


def test_loops_that_are_woken_together_do_not_run_together() -> None:
    assert _rest_of_interval_s(0.7, 1.0) == 0.7
    assert len({_rest_of_interval_s(-3.0, 1.0) for _ in range(9)}) > 1


@pytest.mark.parametrize(("now_s", "pause_s", "until_s"), [
    (10.4, 5.0, 15.0), (15.002, 4.999, 20.0), (10.4, 1.0, 11.0), (11.05, 0.95, 12.0), (10.4, 0.2, 10.6),
    (10.9, 0.2, 11.0), (10.4, 0.0, 10.4),
])  # fmt: skip
def test_the_loops_of_an_idle_process_wake_together(now_s: float, pause_s: float, until_s: float) -> None:
    assert now_s + _until_full_second(now_s, pause_s) == pytest.approx(until_s)


@pytest.mark.parametrize(("tries", "least_s", "most_s"), [(0, 0.5, 1.5), (3, 4, 12), (10, 30, 90), (10_000, 30, 90)])
def test_the_pause_doubles_with_each_try_up_to_its_most(tries: int, least_s: float, most_s: float) -> None:
    pauses = [retry_pause_s(tries, first_s=1, max_s=60) for _ in range(200)]
    assert least_s <= min(pauses) < max(pauses) <= most_s


async def forever() -> None:
    await asyncio.Event().wait()


async def loses_cancellations(number: int) -> None:
    for _ in range(number):
        with suppress(asyncio.CancelledError):
            await forever()


async def fails() -> None:
    raise RuntimeError


async def begin(*works: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(0)
    return tasks


async def test_a_task_that_loses_cancellations_ends_with_those_that_have_ended() -> None:
    tasks = await begin(loses_cancellations(2), forever(), fails(), asyncio.sleep(0))
    await stop(tasks)
    assert all(task.done() for task in tasks)


async def test_a_task_that_refuses_to_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "CANCEL_AGAIN_S", 0.02)
    [task] = await begin(loses_cancellations(20))
    since_s = time.monotonic()
    await stop([task], within_s=0.1)
    assert not task.done()
    assert time.monotonic() - since_s < 2
    await stop([task])


async def test_what_must_end_ends_however_often_its_caller_is_cancelled() -> None:
    done: list[str] = []

    async def slowly() -> str:
        for step in "ab":
            await asyncio.sleep(0.05)
            done.append(step)
        return "end"

    assert await to_the_end(slowly()) == "end"
    caller = asyncio.create_task(to_the_end(slowly()))
    await asyncio.sleep(0)
    while not caller.done():
        caller.cancel()
        await asyncio.sleep(0)
    assert caller.cancelled()
    assert done == list("abab")


async def test_what_must_end_may_fail() -> None:
    with pytest.raises(RuntimeError):
        await to_the_end(fails())
