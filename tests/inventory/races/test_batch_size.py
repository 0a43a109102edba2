"""A rush in one event takes small portions as soon as another event sells, too."""

import asyncio

from services.inventory.reservations.reserve import RECENT_S, BatchSizer
from shared.runtime.group_commit import GroupCommit


def test_an_event_alone_takes_all_and_beside_others_a_few() -> None:
    now_s = 100.0
    portions = BatchSizer(alone_max=256, beside_max=24, clock=lambda: now_s)
    assert [portions.of("hot"), portions.of("hot"), portions.of("quiet"), portions.of("hot")] == [256, 256, 24, 24]
    now_s += RECENT_S / 2
    assert portions.of("hot") == 24
    now_s += RECENT_S
    assert portions.of("hot") == 256, "the other has stopped"


async def test_a_batch_is_as_large_as_it_may_be_when_it_begins() -> None:
    sizes, allowed = [], iter((2, 3, 100))

    async def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    commit = GroupCommit(work, name="test", batch_max=lambda: next(allowed), waiting_max=100)
    assert await asyncio.gather(*(commit.submit(n) for n in range(10))) == list(range(10))
    assert sizes == [2, 3, 5]
    await commit.close()
