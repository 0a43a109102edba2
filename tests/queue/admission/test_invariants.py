"""The invariants of the line: no violation while all is well, and one for each fault that is made on purpose."""

import asyncio

import pytest

from tests.queue.conftest import EVENT, Queue

FAULTS = {
    "3 no number": "UPDATE queue.place SET join_seq = 99 WHERE join_seq = 3",
    "4 every call": "INSERT INTO queue.admission VALUES ('show', 1, 0, 77, 1, 'called', 1, NULL, NULL)",
    "5 nobody is called": "UPDATE queue.lane SET head_seq = 0",
    "4 slots": "UPDATE queue.admission SET state = 'missed' WHERE join_seq = 1",
}


async def broken(queue: Queue) -> list[str]:
    return [violation.invariant for violation in await queue.violations()]


@pytest.mark.parametrize("invariant", FAULTS)
async def test_a_broken_invariant_is_reported(queue: Queue, invariant: str) -> None:
    await queue.open_and_call(fans=3, max_active=2)
    await queue.claim((1, "fan-1"))
    assert await broken(queue) == []
    await queue.sql(FAULTS[invariant])
    assert any(name.startswith(invariant) for name in await broken(queue))


async def test_a_slot_known_to_redis_alone_is_reported(queue: Queue) -> None:
    await queue.open_and_call(fans=2)
    await queue.redis.zadd(f"queue:{{{EVENT}}}:1:active", {"0:2000": 1})
    assert any(name.startswith("4 slots") for name in await broken(queue))


async def test_a_slot_that_is_just_being_freed_is_not_reported(queue: Queue) -> None:
    """A purchase ends its place in the database, and then frees its slot."""
    await queue.open_and_call(fans=2, max_active=2)
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'completed' WHERE join_seq = 1")
    async with asyncio.TaskGroup() as group:
        found = group.create_task(broken(queue))
        await asyncio.sleep(0.25)
        await queue.redis.zrem(f"queue:{{{EVENT}}}:1:called", "0:1")
    assert found.result() == []


async def test_an_empty_redis_is_reported(queue: Queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    assert await broken(queue) == ["3 Redis holds the line"]
