"""Keeps pauses of Python's cyclic garbage collector short while requests are served.

The collector checks new objects in small portions, and objects that survive two checks are not checked again, because
a sale's caches and connections are freed by reference counts: a full collection in a full notifier pauses every fan's
stream by 200 ms. Full collections run in quiet periods, once there are a quarter more objects than at the start, which
leaves little garbage, or after the last one. Before that, `CROWD_SIZE` new objects are collected once and then frozen.

Measures what stops this process for everybody: a late event loop, and the garbage collector.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shared.concurrency.background import stop
from shared.runtime.metrics import GC_PAUSE, LOOP_LAG

TUNED = YOUNG_MAX, COLLECTIONS, NEVER = 3_000, 3, 2**31 - 1
PERIOD_S, QUIET_SHARE = 10.0, 0.02
CROWD_SIZE = 300_000  # objects: of 20,000 streams, and as much again


@asynccontextmanager
async def short_pauses(
    *, period_s: float = PERIOD_S, quiet_share: float = QUIET_SHARE, crowd: int = CROWD_SIZE
) -> AsyncIterator[None]:
    """The collector works in small portions inside this context. A period of `period_s` in which the process uses less
    than `quiet_share` of a processor is quiet. Inside another such context of the process this one does nothing: a
    second full collection would find what the first has left.
    """
    thresholds = gc.get_threshold()
    if thresholds == TUNED:
        yield
        return
    gc.set_threshold(*TUNED)
    gc.freeze()
    watching = asyncio.create_task(_collect_when_quiet(period_s, quiet_share, crowd, old=gc.get_freeze_count()))
    try:
        yield
    finally:
        await stop([watching])
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _collect_when_quiet(period_s: float, quiet_share: float, crowd: int, *, old: int) -> None:
    """Counting frozen objects walks all of them, which takes an idle process more time than all else that it does. So
    they are counted only if there may be enough: they become more only by being frozen here.
    """
    frozen_max = old
    while True:
        before_s = time.process_time()
        await asyncio.sleep(period_s)
        is_quiet = time.process_time() - before_s < quiet_share * period_s
        new = (
            gc.get_count()[2] * YOUNG_MAX * (COLLECTIONS + 1)
        )  # at most: objects that survived two checks since the last full collection
        most = old + old // 4
        if is_quiet and frozen_max + new > most and gc.get_freeze_count() + new > most:
            gc.unfreeze()
            frozen_max = old = _collected()
        elif new > crowd:
            frozen_max = _collected()


def _collected() -> int:
    """Collects all objects that are not frozen and freezes the rest; the number of frozen ones."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


MEASURED_EVERY_S = 1.0


@asynccontextmanager
async def measured_pauses(period_s: float = MEASURED_EVERY_S) -> AsyncIterator[None]:
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
