"""One key of the line's state is lost: no script reads that as empty, and the whole is filled anew."""

import pytest

from services.queue import redis_keys
from services.queue.rooms.invariants import audit
from tests.queue.conftest import EVENT, Queue

PARTS = redis_keys.parts(EVENT, 1, [0])
MAX_ACTIVE = 5


async def clean(queue: Queue) -> bool:
    room = await queue.running.rooms.read(EVENT)
    lines = await audit(queue.db, queue.redis, room, clock_offset_ms=queue.running.line.clock_offset_ms)
    return all(line["holds"] for line in lines)


async def in_the_middle(queue: Queue) -> None:
    """1 bought, 2 has a pass, 3 let a call pass and has another, 4 left, 5 to 7 are called, 8 to 30 wait."""
    await queue.open(max_active=4, claim_window_s=300)
    await queue.crowd(30)
    await queue.turn()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.running.sessions.close(EVENT, 1, [(0, 1)], how="completed", unclaimed=False)
    await queue.leave((4, "fan-4"))
    await queue.redis.zadd(f"queue:{{{EVENT}}}:1:called", {"0:3": 1})
    await queue.configure(max_active=MAX_ACTIVE)
    await queue.turn()
    assert await queue.called() == [3, 5, 6, 7]


@pytest.mark.parametrize("lost", [*PARTS, redis_keys.REPORTERS])
async def test_a_lost_part_lets_nobody_in_beyond_the_limit_and_is_made_again(queue: Queue, lost: str):
    await in_the_middle(queue)
    await queue.heard(*range(8, 31))
    await queue.redis.delete(lost)
    await queue.turn(0.2)
    assert await queue.redis.exists(*PARTS) == len(PARTS)
    assert (await queue.called(), list(await queue.part("active"))) == ([3, 5, 6, 7], ["0:2"])
    assert await clean(queue)
    states = await queue.status((1, "fan-1"), (2, "fan-2"), (4, "fan-4"), (5, "fan-5"), (9, "fan-9"))
    assert states == ["completed", "admitted", "left", "ready", "waiting"]
    assert (await queue.claim((2, "fan-2")))[0].jti == "1-0-2-1"
    await queue.heard(*range(8, 31))
    await queue.configure(max_active=8)
    await queue.turn()
    calls = await queue.sql(
        "SELECT join_seq, count(*) FROM queue.admission WHERE state = 'called' GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in calls] == [(n, 1) for n in (3, 5, 6, 7, 8, 9, 10)], "in order, nobody twice"
    assert await clean(queue)


@pytest.mark.parametrize("lost", PARTS)
async def test_no_fan_is_told_what_an_incomplete_state_says(queue: Queue, lost: str):
    """Between the loss and the next turn: answers come from the ledger, or nobody is answered."""
    await in_the_middle(queue)
    await queue.redis.delete(lost)
    assert await queue.status((2, "fan-2"), (5, "fan-5"), (4, "fan-4"), (9, "fan-9")) == [
        "admitted", "ready", "left", "waiting"
    ]  # fmt: skip
    assert [j.join_seq for j in await queue.join("late")] == [31]
    await queue.leave((5, "fan-5"))
    await queue.turn(0.2)
    assert await queue.status((5, "fan-5")) == ["left"]
    assert await clean(queue)


async def test_a_lane_that_an_operator_adds_is_no_loss(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    fill = (await queue.room_hash())["fill"]
    await queue.sql("INSERT INTO queue.lane VALUES (:e, 1, 1, 0)", e=EVENT)
    await queue.running.rooms.refresh()
    await queue.running.gatekeeper.raise_counters()
    await queue.turn()
    assert [(j.lane, j.join_seq) for j in await queue.join("vip", lane=1)] == [(1, 1)]
    assert (await queue.room_hash())["fill"] == fill
    assert await queue.redis.exists(*redis_keys.parts(EVENT, 1, [0, 1])) == 11 + 6
