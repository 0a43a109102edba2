"""The books after a sale: compared again and again until its last payments are through."""

import asyncio
import time
from collections.abc import Awaitable, Callable

SETTLE_S, QUIET_S, READ_INTERVAL_S = 150.0, 4.0, 1.0


async def what_stays_wrong(
    read: Callable[[], Awaitable[list[str]]], *, settle_s: float = SETTLE_S, quiet_s: float = QUIET_S
) -> list[str]:
    """What is wrong, a sentence each, once nothing has been for `quiet_s` or after `settle_s`."""
    deadline_s, quiet_since_s = time.monotonic() + settle_s, 0.0
    while True:
        wrong = await read()
        now_s = time.monotonic()
        quiet_since_s = 0.0 if wrong else (quiet_since_s or now_s)
        if now_s > deadline_s or (quiet_since_s and now_s - quiet_since_s >= quiet_s):
            return wrong
        await asyncio.sleep(READ_INTERVAL_S)
