"""One key of the line's state is lost: no script takes it for empty, and the whole state is rebuilt."""

import pytest

from services.queue import redis_keys
from tests.queue.conftest import EVENT, Queue
from tests.queue.recovery.lines import open_line, redis_state

PARTS = redis_keys.parts(EVENT, 1, [0])
ALL = "*"


@pytest.mark.parametrize("key", [*PARTS, redis_keys.reporters(), ALL])
async def test_a_lost_key_is_rebuilt_and_no_fan_is_called_beyond_max_active(queue: Queue, key: str):
    await open_line(queue)
    before = await redis_state(queue)
    assert before["misses"] == {b"0:3": b"1", b"mark": b"0"}
    await queue.heartbeat(*range(8, 31))
    await (queue.redis.flushall() if key == ALL else queue.redis.delete(key))
    assert (await queue.tick(0.2)).ready
    assert await redis_state(queue) == before
    assert await queue.redis.exists(*PARTS) == len(PARTS)
    assert (await queue.called(), list(await queue.sorted_set("active"))) == ([3, 5, 6, 7], ["0:2"])
    assert await queue.violations() == []
    states = await queue.status((1, "fan-1"), (2, "fan-2"), (4, "fan-4"), (5, "fan-5"), (9, "fan-9"))
    assert states == ["completed", "admitted", "left", "ready", "waiting"]
    assert (await queue.claim((2, "fan-2")))[0].jti == "1-0-2-1"
    await queue.heartbeat(*range(8, 31))
    await queue.configure(max_active=8)
    await queue.tick()
    calls = await queue.sql(
        "SELECT join_seq, count(*) FROM queue.admission JOIN queue.place USING (event_id, epoch, lane, join_seq) "
        "WHERE state = 'called' AND ended_at IS NULL GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in calls] == [(n, 1) for n in (3, 5, 6, 7, 8, 9, 10)], "in order, and each once"
    assert await queue.violations() == []


@pytest.mark.parametrize("key", PARTS)
async def test_an_incomplete_state_gives_no_fan_a_wrong_status(queue: Queue, key: str):
    """Between the loss and the next tick, answers come from the database or are refused."""
    await open_line(queue)
    await queue.redis.delete(key)
    assert await queue.status((2, "fan-2"), (5, "fan-5"), (4, "fan-4"), (9, "fan-9")) == [
        "admitted", "ready", "left", "waiting"
    ]  # fmt: skip
    assert [j.join_seq for j in await queue.join("late")] == [31]
    await queue.leave((5, "fan-5"))
    await queue.tick(0.2)
    assert await queue.status((5, "fan-5")) == ["left"]
    assert await queue.violations() == []


async def test_a_lane_added_by_an_operator_is_not_taken_for_a_loss(queue: Queue):
    await queue.open(fans=3, rate_per_s=0)
    generation = (await queue.room_hash())["generation"]
    await queue.sql("INSERT INTO queue.lane VALUES (:e, 1, 1, 0)", e=EVENT)
    await queue.state.rooms.refresh()
    await queue.state.gatekeeper.raise_counters()
    await queue.tick()
    assert [(j.lane, j.join_seq) for j in await queue.join("vip", lane=1)] == [(1, 1)]
    assert (await queue.room_hash())["generation"] == generation
    assert await queue.redis.exists(*redis_keys.parts(EVENT, 1, [0, 1])) == 11 + 6
