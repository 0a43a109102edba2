"""Background loops: pauses after failures double up to a limit; loops rest while nothing happens, and are woken."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from shared.concurrency import background
from shared.concurrency.background import (
    ACTIVITY,
    LINGER_S,
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Loops,
    _until_full_second,
)
from shared.messaging.relay import LOCK_S
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
    """Counts its runs; from `fails_from` on each of them fails."""

    def __init__(self, *, fails_from: int = 1_000_000) -> None:
        self.count, self._fails_from = 0, fails_from

    async def run(self) -> None:
        self.count += 1
        if self.count >= self._fails_from:
            raise RuntimeError


@pytest.mark.parametrize("stirs", [True, False])
async def test_a_loop_that_rests_is_woken_by_what_comes_in(silence: Callable[[], None], stirs: bool) -> None:
    silence()
    async with Loops() as loops:
        loops.every(0.02, (runs := Runs()).run, name="test", idle_s=3600)
        await wait_until(lambda: len(ACTIVITY._resting) == 1)
        assert runs.count == 1
        if stirs:
            ACTIVITY.stir()
            await wait_until(lambda: runs.count >= 5, timeout_s=5)  # at its own pace again
        else:
            with pytest.raises(AssertionError):
                await wait_until(lambda: runs.count >= 2, timeout_s=0.3)


async def test_a_loop_that_nothing_wakes_still_runs(silence: Callable[[], None]) -> None:
    silence()
    async with Loops() as loops:
        loops.every(0.01, (runs := Runs()).run, name="test", idle_s=0.05)
        await wait_until(lambda: runs.count >= 3, timeout_s=5)
        assert ACTIVITY.silent


async def test_a_loop_does_not_rest_while_something_happens_or_after_a_failure(silence: Callable[[], None]) -> None:
    async with Loops() as loops:
        loops.every(0.01, (busy := Runs()).run, name="test", idle_s=3600)
        await wait_until(lambda: busy.count >= 3, timeout_s=5)
        silence()
        loops.every(0.01, (failing := Runs(fails_from=1)).run, name="failing", idle_s=3600)
        await wait_until(lambda: failing.count >= 3, timeout_s=5)


def test_a_relay_rests_only_when_the_lock_of_a_dead_one_has_ended() -> None:
    assert LINGER_S > LOCK_S, "the relay of another process could not publish, and this one would not"


@pytest.mark.parametrize(("now_s", "pause_s", "until_s"), [
    (10.4, 5.0, 15.0), (15.002, 4.999, 20.0), (10.4, 1.0, 11.0), (11.05, 0.95, 12.0), (10.4, 0.2, 10.6),
    (10.9, 0.2, 11.0), (10.4, 0.0, 10.4),
])  # fmt: skip
def test_the_loops_of_an_idle_process_wake_together(now_s: float, pause_s: float, until_s: float) -> None:
    assert now_s + _until_full_second(now_s, pause_s) == pytest.approx(until_s)


async def test_only_an_idle_process_waits_for_a_full_second(
    silence: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def until(_now_s: float, pause_s: float) -> float:
        asked.append(pause_s)
        return pause_s

    monkeypatch.setattr(background, "_until_full_second", until)
    async with Loops() as loops:
        loops.every(0.01, (runs := Runs()).run, name="test")
        await wait_until(lambda: runs.count >= 3)
        assert not asked
        silence()
        await wait_until(lambda: asked)
