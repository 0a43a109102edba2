"""A loop that fails again and again rests longer each time; one that ran well for a while does not pay for the past."""

import asyncio
from collections.abc import Iterator

import pytest

from shared.runtime.background import RETRY_FIRST_S, RETRY_MAX_S, Loops


@pytest.mark.parametrize(("ran_s", "last_rest_s"), [(0.0, RETRY_FIRST_S * 8), (RETRY_MAX_S + 1, RETRY_FIRST_S)])
async def test_only_trouble_without_a_break_makes_the_rest_longer(
    monkeypatch: pytest.MonkeyPatch, ran_s: float, last_rest_s: float
) -> None:
    rests: list[float] = []
    times: Iterator[float] = iter([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0 + ran_s, 20.0, 20.0])

    class Clock:
        time = staticmethod(lambda: next(times))

    async def fails() -> None:
        raise RuntimeError

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: Clock)
    monkeypatch.setattr(asyncio, "sleep", rest)
    with pytest.raises(asyncio.CancelledError):
        await Loops()._every(0.0, fails, "test")
    assert rests == [RETRY_FIRST_S, RETRY_FIRST_S * 2, RETRY_FIRST_S * 4, last_rest_s]
