"""Waits for something to become true instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable


async def wait_until(
    predicate: Callable[[], object | Awaitable[object]], *, timeout_s: float = 5.0, interval_s: float = 0.01
) -> None:
    """Return once the predicate, sync or async, holds; fail with its source when it does not within `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {timeout_s:g} s (last answer {answer!r}): {_described(predicate)}")
        await asyncio.sleep(interval_s)


def _described(predicate: Callable[[], object]) -> str:
    """What the test wrote, as far as Python can tell."""
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):
        return repr(predicate)
