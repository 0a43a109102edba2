"""A line with places in all states, and its state in Redis."""

from typing import Any

from tests.queue.conftest import EVENT, ROOM_KEY, Queue

KEY = f"queue:{{{EVENT}}}:1"


async def open_line(queue: Queue) -> None:
    """1 bought, 2 has a pass, 3 missed one call and has another, 4 left, 5 to 7 are called, 8 to 30 wait."""
    await queue.open_and_call(fans=30, max_active=4, claim_window_s=300)
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.state.sessions.end_places(EVENT, 1, [(0, 1)], end_reason="completed", unclaimed=False)
    await queue.leave((4, "fan-4"))
    await queue.redis.zadd(f"{KEY}:called", {"0:3": 1})
    await queue.configure(max_active=5)
    await queue.tick()
    assert await queue.called() == [3, 5, 6, 7]


async def redis_state(queue: Queue) -> dict[str, Any]:
    redis = queue.redis
    return {
        "called": await queue.sorted_set("called"),
        "active": await queue.sorted_set("active"),
        "misses": await redis.hgetall(f"{KEY}:misses"),
        "taken": (await redis.get(f"{KEY}:0:taken") or b"").rstrip(b"\0"),
        "done": (await redis.get(f"{KEY}:0:done") or b"").rstrip(b"\0"),
        "heads": await redis.hmget(ROOM_KEY, "head_seq:0", "join_seq:0"),
    }
