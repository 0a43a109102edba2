"""Who submits at the very moment the last batch ends is not forgotten."""

import asyncio

from shared.runtime.group_commit import GroupCommit


async def test_one_after_the_other_never_waits_for_ever() -> None:
    async def work(items: list[int]) -> list[int]:
        return items

    batches: GroupCommit[int, int] = GroupCommit(work, name="again", batch_max=4, waiting_max=4)
    async with asyncio.timeout(2):
        assert [await batches.submit(i) for i in range(20)] == list(range(20))
        await batches.close()
