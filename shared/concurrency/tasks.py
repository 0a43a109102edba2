"""`stop` ends tasks; `to_the_end` lets none be ended."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

CANCEL_AGAIN_S = 0.1
STOP_WITHIN_S = 3.0


async def stop(tasks: Iterable[asyncio.Task[Any]], *, within_s: float = STOP_WITHIN_S) -> None:
    """Cancels the tasks and returns when all have ended, at the latest after `within_s`. What they raise is dropped.

    They are cancelled again and again: Python 3.11's `wait_for` loses a cancellation that arrives as its wait ends.
    """
    clock = asyncio.get_running_loop().time
    left, give_up_at = set(tasks), clock() + within_s
    while left and clock() < give_up_at:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits the work to its end, however often the caller is cancelled meanwhile; raises `CancelledError` then.

    For what must not be left half done. The work must end by itself.
    """
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled:
        raise cancelled
    return task.result()
