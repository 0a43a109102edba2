"""A rush in one event takes small portions as soon as another event sells, too."""

import asyncio

from services.inventory.reservations.reserve import CONTENTION_WINDOW_S, BatchSizer
from shared.runtime.group_commit import GroupCommit


def test_an_event_alone_takes_all_and_beside_others_a_few() -> None:
    now_s = 100.0
    portions = BatchSizer(batch_max=256, batch_max_contended=24, clock=lambda: now_s)
    assert [
        portions.next_max("hot"),
        portions.next_max("hot"),
        portions.next_max("quiet"),
        portions.next_max("hot"),
    ] == [256, 256, 24, 24]
    now_s += CONTENTION_WINDOW_S / 2
    assert portions.next_max("hot") == 24
    now_s += CONTENTION_WINDOW_S
    assert portions.next_max("hot") == 256, "the other has stopped"


async def test_a_batch_is_as_large_as_it_may_be_when_it_begins() -> None:
    sizes, allowed = [], iter((2, 3, 100))

    async def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    commit = GroupCommit(work, name="test", batch_max=lambda: next(allowed), waiting_max=100)
    assert await asyncio.gather(*(commit.submit(n) for n in range(10))) == list(range(10))
    assert sizes == [2, 3, 5]
    await commit.close()
