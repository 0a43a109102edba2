"""Measures what stops this process for everybody: a late event loop, and the garbage collector."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shared.concurrency.tasks import stop
from shared.runtime.metrics import GC_PAUSE, LOOP_LAG

PERIOD_S = 1.0


@asynccontextmanager
async def measured_pauses(period_s: float = PERIOD_S) -> AsyncIterator[None]:
    """Inside this context a timer measures its own lateness every `period_s` seconds, and each run of the collector is
    timed.
    """
    gc.callbacks.append(timed := _gc_timer())
    probe = asyncio.create_task(_probe(period_s), name="loop lag")
    try:
        yield
    finally:
        await stop([probe])
        gc.callbacks.remove(timed)


async def _probe(period_s: float) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due_s = clock() + period_s
        await asyncio.sleep(period_s)
        LOOP_LAG.observe(clock() - due_s)


def _gc_timer() -> Any:
    began_s = 0.0

    def timed(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.perf_counter()
        elif began_s:
            GC_PAUSE.observe(time.perf_counter() - began_s)

    return timed
