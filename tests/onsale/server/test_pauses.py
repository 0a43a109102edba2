"""Garbage collections are short while requests are served, and old garbage is still collected in quiet periods.

What stops a process for everybody is measured: a late event loop and runs of the garbage collector.
"""

import asyncio
import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from onsale.imports import import_module
from onsale.server.pauses import YOUNG_MAX, measured_pauses, short_pauses
from tests.support.wait import wait_until


class Cycle:
    """Refers to itself, so that only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


async def test_objects_that_stay_alive_are_not_checked_again_and_again() -> None:
    checked: list[int] = []

    def before(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            checked.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    async with short_pauses(period_s=60):
        await asyncio.sleep(0)
        gc.callbacks.append(before)
        live_objects = [[n] for n in range(200_000)]
        gc.callbacks.remove(before)
    assert len(live_objects) == 200_000
    assert len(checked) > 20
    assert max(checked) < 8 * YOUNG_MAX


@pytest.mark.proof
async def test_garbage_from_before_the_start_is_collected_in_a_quiet_period() -> None:
    before, cycle = Cycle(), Cycle()
    first, reference = weakref.ref(before), weakref.ref(cycle)
    del before
    async with short_pauses(period_s=0.01, quiet_share=10):
        del cycle
        await asyncio.sleep(0.1)
        assert first() is not None, "a start waits for no collection"
        assert reference() is not None, "no new objects, so no collection"
        live_objects = [[n] for n in range(gc.get_freeze_count() // 2)]
        await wait_until(lambda: first() is None and reference() is None)
    assert live_objects


@pytest.mark.proof
async def test_under_load_many_new_objects_are_checked_once_and_then_frozen() -> None:
    crowd = 20 * YOUNG_MAX
    async with short_pauses(period_s=0.01, quiet_share=0, crowd=crowd):
        cycle, later = Cycle(), Cycle()
        reference, later_reference = weakref.ref(cycle), weakref.ref(later)
        live_objects = [[n] for n in range(10 * YOUNG_MAX)]
        del cycle
        await asyncio.sleep(0.1)
        assert reference() is not None, "too few new objects for a collection"
        live_objects += [[n] for n in range(2 * crowd)]
        await wait_until(lambda: reference() is None)
        del later
        live_objects += [[n] for n in range(2 * crowd)]
        await asyncio.sleep(0.1)
        assert later_reference() is not None, "it was checked once and is frozen until a quiet period"
    gc.collect()
    assert later_reference() is None


async def test_objects_from_before_the_start_are_frozen_while_requests_are_served() -> None:
    before, tracked = gc.get_freeze_count(), len(gc.get_objects())
    async with short_pauses():
        assert gc.get_freeze_count() - before > tracked / 2
        assert len(gc.get_objects()) < tracked / 2


async def test_a_context_inside_another_collects_nothing_and_leaves_it_as_it_is() -> None:
    collections: list[str] = []
    async with short_pauses():
        within = gc.get_threshold()
        gc.callbacks.append(lambda phase, info: collections.append(phase))
        async with short_pauses():
            pass
        gc.callbacks.pop()
        assert (collections, gc.get_threshold()) == ([], within)


async def test_the_collectors_thresholds_are_restored_afterwards() -> None:
    before = gc.get_threshold()
    async with short_pauses():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_nothing_is_collected_while_modules_are_imported_and_none_of_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many_objects.py").write_text("live = [[n] for n in range(100_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    collections: list[str] = []
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    module = import_module("many_objects")
    gc.callbacks.pop()
    assert (collections, gc.isenabled(), len(module.live)) == ([], True, 100_000)
    assert gc.get_freeze_count() > 100_000
    gc.unfreeze()


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
