"""Batch sizes: one event alone uses large batches; as soon as another event sells too, batches are small."""

import asyncio

from services.inventory.reservations.reserve import CONTENTION_WINDOW_S, BatchSizer
from shared.concurrency.coalescing import GroupCommit


def test_batches_are_smaller_while_several_events_sell() -> None:
    now_s = 100.0
    sizer = BatchSizer(batch_max=256, batch_max_contended=24, clock=lambda: now_s)
    assert [sizer.next_max(event_id) for event_id in ("hot", "hot", "quiet", "hot")] == [256, 256, 24, 24]
    now_s += CONTENTION_WINDOW_S / 2
    assert sizer.next_max("hot") == 24
    now_s += CONTENTION_WINDOW_S
    assert sizer.next_max("hot") == 256, "the other event has stopped selling"


async def test_a_batch_has_the_size_allowed_when_it_begins() -> None:
    sizes, allowed = [], iter((2, 3, 100))

    async def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    commit = GroupCommit(work, name="test", batch_max=lambda: next(allowed), waiting_max=100)
    assert await asyncio.gather(*(commit.submit(n) for n in range(10))) == list(range(10))
    assert sizes == [2, 3, 5]
    await commit.close()
