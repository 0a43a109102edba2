"""Keeps the collector of cyclic garbage from holding up whoever is being served.

It looks at new objects in small portions, and what outlives two looks is left alone, because a sale's caches and
connections go by counting references: a look at everything in a full notifier is a pause of 200 ms for every fan. Such
a look is had when the process has started and then in quiet moments, if there is a quarter more than after the last.
Until one comes, a crowd's worth of new objects is looked at once and then counts as old.
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
    gc.set_threshold(YOUNG_MAX, LOOKS, NEVER)
    watching = asyncio.create_task(_look_in_time(turn_s, quiet_share, crowd, old=_look_at_all()))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _look_in_time(turn_s: float, quiet_share: float, crowd: int, *, old: int) -> None:
    while True:
        before_s = time.process_time()
        await asyncio.sleep(turn_s)
        is_quiet = time.process_time() - before_s < quiet_share * turn_s
        new = gc.get_count()[2] * YOUNG_MAX * (LOOKS + 1)  # at most: what outlived two looks since the last of all
        if is_quiet and gc.get_freeze_count() + new > old + old // 4:
            old = _look_at_all()
        elif new > crowd:
            gc.collect()
            gc.freeze()


def _look_at_all() -> int:
    """How many objects there are afterwards; none of them is looked at again until the next time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()
