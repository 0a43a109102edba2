"""Keeps the collector of cyclic garbage from holding up whoever is being served.

It looks at new objects in small portions; what outlives two looks is left alone, because a sale's caches and
connections go by counting references, and a look at fifty thousand of them is a pause of 50 ms for every fan.
Everything is looked at in a quiet moment, or at the latest when twice as much may be there as after the last time.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

YOUNG_MAX, LOOKS, NEVER = 3_000, 3, 2**31 - 1
TURN_S, QUIET_SHARE = 10.0, 0.02


@asynccontextmanager
async def short_pauses(*, turn_s: float = TURN_S, quiet_share: float = QUIET_SHARE) -> AsyncIterator[None]:
    """Within it the collector of this process works in small portions. A turn of less than this share of a processor
    is quiet.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, LOOKS, NEVER)
    watching = asyncio.create_task(_look_at_all_in_time(turn_s, quiet_share))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        gc.set_threshold(*thresholds)


async def _look_at_all_in_time(turn_s: float, quiet_share: float) -> None:
    while True:
        gc.collect()
        kept, new, is_quiet = len(gc.get_objects()), 0, False
        while not (is_quiet and new) and new < kept:
            before_s = time.process_time()
            await asyncio.sleep(turn_s)
            is_quiet = time.process_time() - before_s < quiet_share * turn_s
            new = gc.get_count()[2] * YOUNG_MAX * (LOOKS + 1)  # at most: what outlived two looks since
