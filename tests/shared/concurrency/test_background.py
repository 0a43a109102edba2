"""Background loops: the pause after a failure doubles up to a limit, and starts anew after a long enough run."""

import asyncio
from collections.abc import Iterator

import pytest

from shared.concurrency.background import RETRY_FIRST_S, RETRY_MAX_S, Loops


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
