"""What stops a process for everybody is measured: a late event loop and runs of the garbage collector."""

import asyncio
import gc
import time

from prometheus_client import REGISTRY

from onsale.server.loop_health import measured_pauses
from tests.support.wait import wait_until


def value(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


async def test_the_lag_of_a_blocked_event_loop_is_measured() -> None:
    count, lag_s = value("onsale_loop_lag_seconds_count"), value("onsale_loop_lag_seconds_sum")
    async with measured_pauses(period_s=0.05):
        await wait_until(lambda: value("onsale_loop_lag_seconds_count") > count + 1)
        asyncio.get_running_loop().call_soon(time.sleep, 0.2)
        await wait_until(lambda: value("onsale_loop_lag_seconds_sum") > lag_s + 0.1)


async def test_runs_of_the_garbage_collector_are_timed_inside_the_context_only() -> None:
    callbacks_before = len(gc.callbacks)
    async with measured_pauses():
        before = value("onsale_gc_pause_seconds_count")
        gc.collect()
        assert value("onsale_gc_pause_seconds_count") > before
    assert len(gc.callbacks) == callbacks_before
