"""The audit of the line: clean while all is well, and red for each promise that is broken on purpose."""

import pytest

from services.queue.rooms.invariants import check_invariants

EVENT = "show"

BREAKS = {
    "3 no number": "UPDATE queue.place SET join_seq = 99 WHERE join_seq = 3",
    "4 every call": "INSERT INTO queue.admission VALUES ('show', 1, 0, 77, 1, 'called', 1, NULL, NULL)",
    "5 nobody is called": "UPDATE queue.lane SET head_seq = 0",
    "4 slots": "UPDATE queue.admission SET state = 'missed' WHERE join_seq = 1",
}


async def broken(queue) -> list[str]:
    room = await queue.state.rooms.read(EVENT)
    lines = await check_invariants(queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms)
    return [line.invariant for line in lines if not line.holds]


@pytest.mark.parametrize("promise", BREAKS)
async def test_a_broken_promise_is_named(queue, promise) -> None:
    await queue.open(max_active=2)
    await queue.crowd(3)
    await queue.tick()
    await queue.claim((1, "fan-1"))
    assert await broken(queue) == []
    await queue.sql(BREAKS[promise])
    assert any(name.startswith(promise) for name in await broken(queue))


async def test_a_slot_that_only_redis_knows_is_named(queue) -> None:
    await queue.open()
    await queue.crowd(2)
    await queue.tick()
    await queue.redis.zadd(f"queue:{{{EVENT}}}:1:active", {"0:2000": 1})
    assert any(name.startswith("4 slots") for name in await broken(queue))


async def test_an_empty_redis_is_named(queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    assert await broken(queue) == ["3 Redis holds the line"]
