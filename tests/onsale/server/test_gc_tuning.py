"""A collection is short while fans are served, and garbage that outlived it goes all the same."""

import asyncio
import gc
import weakref
from typing import Any

from onsale.server.gc_tuning import YOUNG_MAX, short_pauses
from tests.support.wait import wait_until


class Knot:
    def __init__(self) -> None:
        self.itself = self


async def test_what_is_kept_is_not_looked_at_again_and_again() -> None:
    looked_at: list[int] = []

    def before(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    async with short_pauses(period_s=60):
        await asyncio.sleep(0)
        gc.callbacks.append(before)
        kept = [[n] for n in range(200_000)]
        gc.callbacks.remove(before)
    assert len(kept) == 200_000
    assert len(looked_at) > 20
    assert max(looked_at) < 8 * YOUNG_MAX


async def test_garbage_goes_in_a_quiet_moment_even_if_it_was_there_at_the_start() -> None:
    knot = Knot()
    seen = weakref.ref(knot)
    async with short_pauses(period_s=0.01, quiet_share=10):
        del knot
        await asyncio.sleep(0.1)
        assert seen() is not None, "nothing is new"
        kept = [[n] for n in range(gc.get_freeze_count() // 2)]
        await wait_until(lambda: seen() is None)
    assert kept


async def test_in_service_a_crowd_is_looked_at_once() -> None:
    crowd = 20 * YOUNG_MAX
    async with short_pauses(period_s=0.01, quiet_share=0, crowd=crowd):
        knot, later = Knot(), Knot()
        seen, seen_later = weakref.ref(knot), weakref.ref(later)
        kept = [[n] for n in range(10 * YOUNG_MAX)]
        del knot
        await asyncio.sleep(0.1)
        assert seen() is not None, "nobody is held up for so little"
        kept += [[n] for n in range(2 * crowd)]
        await wait_until(lambda: seen() is None)
        del later
        kept += [[n] for n in range(2 * crowd)]
        await asyncio.sleep(0.1)
        assert seen_later() is not None, "it was looked at, and waits for a quiet moment"
    gc.collect()
    assert seen_later() is None


async def test_what_a_process_started_with_is_not_looked_at_in_service() -> None:
    before, there = gc.get_freeze_count(), len(gc.get_objects())
    async with short_pauses():
        assert gc.get_freeze_count() - before > there / 2
        assert len(gc.get_objects()) < there / 2


async def test_nothing_of_it_stays_afterwards() -> None:
    before = gc.get_threshold()
    async with short_pauses():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
