"""Keeps the collector of cyclic garbage from holding up whoever is being served.

What a process is made of when it has started is never looked at again. New objects are looked at in small portions, and
what outlives two looks is left alone, because a sale's caches and connections go by counting references: a look at the
streams of one full notifier is a pause of 100 ms for every fan. It is had in a quiet moment, if there is a quarter more
than after the last one, or at the latest when there may be a crowd's worth more than twice as much.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

YOUNG_MAX, LOOKS, NEVER = 3_000, 3, 2**31 - 1
TURN_S, QUIET_SHARE = 10.0, 0.02
CROWD = 300_000  # objects: of 20,000 streams, and as much again


@asynccontextmanager
async def short_pauses(
    *, turn_s: float = TURN_S, quiet_share: float = QUIET_SHARE, crowd: int = CROWD
) -> AsyncIterator[None]:
    """Within it the collector of this process works in small portions. A turn of less than this share of a processor
    is quiet.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, LOOKS, NEVER)
    watching = asyncio.create_task(_look_at_all_in_time(turn_s, quiet_share, crowd))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _look_at_all_in_time(turn_s: float, quiet_share: float, crowd: int) -> None:
    kept = 0
    while True:
        before_s = time.process_time()
        await asyncio.sleep(turn_s)
        is_quiet = time.process_time() - before_s < quiet_share * turn_s
        new = gc.get_count()[2] * YOUNG_MAX * (LOOKS + 1)  # at most: what outlived two looks since the last of all
        if new > (kept // 4 if is_quiet else kept + crowd):
            gc.collect()
            kept = len(gc.get_objects())
