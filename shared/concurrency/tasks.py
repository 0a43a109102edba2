"""`stop` ends tasks."""

import asyncio
from collections.abc import Iterable
from typing import Any

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
