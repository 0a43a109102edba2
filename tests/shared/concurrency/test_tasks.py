"""`stop` ends tasks that lose a cancellation, and gives up on those that refuse. `to_the_end` lets none be ended."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from shared.concurrency import tasks as tasks_module
from shared.concurrency.tasks import stop, to_the_end


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
