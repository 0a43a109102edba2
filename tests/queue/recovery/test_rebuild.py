"""Rebuilding a line in Redis: places, order and calls are kept, and writes from before the rebuild are refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from services.queue import redis_keys
from services.queue.line.redis_line import Allocation, LineNotReady
from services.queue.line.repository import LineRepository
from services.queue.rooms.model import RequestedBy
from tests.queue.conftest import EVENT, ROOM_KEY, Queue, event_file

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


# -- a rebuild ---------------------------------------------------------------------------------------------------------


async def test_two_processes_build_a_new_room_once_and_at_the_full_rate(queue: Queue, new_queue: Callable[[], Queue]):
    """A process that took the other's rebuild for a loss would rebuild again and start the rate at a fifth."""
    both = queue, new_queue()
    await queue.state.rooms.apply(event_file(), RequestedBy("test"))
    await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both for _ in range(3)))
    fields = await queue.room_hash()
    assert (fields["generation"], fields["ramp_ms"]) == ("1", "0")
    await queue.transition("open")
    await queue.join_fans(3)
    await queue.redis.flushall()
    assert sorted(await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both))) == [False, True]
    fields = await queue.room_hash()
    assert (fields["generation"], fields["ready"], fields["join_seq:0"]) == ("2", "1", "3"), "one rebuild for one loss"


async def test_a_rebuild_of_a_long_line_restores_exactly_the_ended_places(queue: Queue):
    await queue.open(fans=300, rate_per_s=0)
    ended = [1, 7, 8, 63, 64, 65, 127, 128, 191, 192, 256, 300]
    await queue.leave(*((n, f"fan-{n}") for n in ended))
    before = await redis_state(queue)
    await queue.redis.flushall()
    await queue.tick()
    assert await redis_state(queue) == before
    bits = (await queue.redis.get(f"{KEY}:0:done")) or b""
    assert [n for n in range(1, len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == ended


async def test_a_place_with_a_missed_call_in_the_database_alone_may_be_called_again(queue: Queue):
    await open_line(queue)
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms) "
        "VALUES (:event_id, 1, 0, 2, 2, 'missed', 1)",
        event_id=EVENT,
    )
    await queue.redis.flushall()
    await queue.tick()
    assert (await queue.redis.getbit(f"{KEY}:0:taken", 2), await queue.redis.hget(f"{KEY}:misses", "0:2")) == (0, b"2")


async def test_a_rebuilt_line_calls_fans_before_their_next_heartbeat(queue: Queue):
    await queue.open(fans=5, rate_per_s=0)
    await queue.redis.flushall()
    await queue.tick()
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert await queue.called() == [1, 2, 3, 4, 5]


async def test_a_call_that_was_never_saved_is_made_again(queue: Queue):
    await queue.open(fans=3)
    queue.advance_clock(1)
    ticked = await queue.tick_unsaved()
    assert {change.join_seq for change in ticked.changes} <= {1, 2, 3}
    await queue.sql("DELETE FROM queue.admission")
    await queue.sql("UPDATE queue.lane SET head_seq = 0")
    await queue.redis.flushall()
    await queue.tick()
    await queue.tick()
    await queue.tick()
    assert await queue.called() == [1, 2, 3]


@pytest.mark.parametrize("given_by", ["redis", "database"])
async def test_a_number_that_was_passed_over_without_a_place_is_not_given_after_a_loss(queue: Queue, given_by: str):
    """A fan who asked twice at once left number 3 unused. Who got it now would wait behind everybody."""
    await queue.open_and_call(fans=2)
    await queue.sql("UPDATE queue.lane SET head_seq = 3")
    await queue.redis.flushall()
    if given_by == "redis":
        await queue.tick()
        [joined] = await queue.join_fans(1, name="next")
        assert joined.join_seq == 4
        await queue.tick()
        await queue.tick()
        assert 4 in await queue.called()
    else:
        async with queue.db.begin() as connection:
            numbers = await LineRepository(connection, EVENT, 1).insert_places_in_db(
                0, [("next", None), ("last", None)]
            )
        assert numbers == {"next": 4, "last": 5}


async def test_the_watch_rebuilds_a_line_built_on_another_redis_instance(queue: Queue):
    await queue.open(fans=3, rate_per_s=0)
    await queue.sql("UPDATE queue.room SET redis_instance_id = 'the one before'")
    await queue.state.rooms.refresh()
    await queue.write_room_hash({"join_seq:0": 1})
    before = (await queue.state.rooms.get(EVENT)).generation
    await queue.state.recovery.watch()
    assert (await queue.room_hash())["join_seq:0"] == "3"
    assert (await queue.state.rooms.get(EVENT)).generation == before + 1
    await queue.state.recovery.watch()
    assert (await queue.state.rooms.get(EVENT)).generation == before + 1, "it is rebuilt once"


async def test_an_older_rebuild_never_replaces_a_later_one(queue: Queue):
    await queue.open(fans=3, rate_per_s=0)
    old = await queue.state.rooms.get(EVENT)
    await queue.redis.flushall()
    assert await queue.state.recovery.rebuild(EVENT)
    assert not await queue.state.recovery._write_redis(old, ramp=False)
    assert (await queue.room_hash())["generation"] == str(old.generation + 1)


async def test_a_batch_numbered_before_a_rebuild_is_refused_and_numbered_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    await queue.open(fans=2, rate_per_s=0)
    line, allocate = queue.state.line, queue.state.line.allocate
    given: list[Allocation] = []

    async def lose_redis_after(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if numbers.outcome == "ok":
            given.append(numbers)
        if len(given) == 1:
            await queue.redis.flushall()
            await queue.state.recovery.rebuild(EVENT)
        return numbers

    monkeypatch.setattr(line, "allocate", lose_redis_after)
    [joined] = await queue.join("ann")
    assert joined.join_seq == 3
    await queue.configure(rate_per_s=50.0)
    tail = (await queue.tick()).lanes[0].tail_seq
    inflight = len(await queue.sorted_set("0:inflight"))
    assert (len(await queue.sql("SELECT 1 FROM queue.place")), tail, inflight) == (3, 3, 0)
    generation = (await queue.state.rooms.get(EVENT)).generation
    assert [numbers.generation for numbers in given] == [generation - 1, generation]


async def test_calls_from_before_a_rebuild_are_not_saved(queue: Queue):
    await queue.open(fans=2, rate_per_s=0)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.advance_clock(1)
    ticked = await queue.tick_unsaved()
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    with pytest.raises(LineNotReady):
        await queue.state.gatekeeper._save(room, ticked)


async def test_a_rebuild_waits_for_the_fence_of_a_batch_that_is_being_inserted(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.redis.flushall()
    async with queue.db.begin() as connection:
        await LineRepository(connection, EVENT, 1).fence()
        rebuilding = asyncio.create_task(queue.state.recovery.rebuild(EVENT))
        done, _ = await asyncio.wait([rebuilding], timeout=0.2)
        assert not done
        generation = await connection.scalar(text("SELECT generation FROM queue.room"))
    assert await rebuilding
    assert (await queue.state.rooms.get(EVENT)).generation == generation + 1


async def test_an_acknowledgement_keeps_the_changes_of_another_gatekeeper(queue: Queue, new_queue):
    await queue.open(fans=4, rate_per_s=0)
    await queue.configure(rate_per_s=10.0)
    one, other = queue, new_queue()
    room = await one.state.rooms.get(EVENT)
    other.state.line.clock_offset_ms = one.state.line.clock_offset_ms = 200
    first = await one.tick_unsaved()
    other.state.line.clock_offset_ms = one.state.line.clock_offset_ms = 400
    await other.tick_unsaved()  # this gatekeeper dies before it saves its calls
    await one.state.gatekeeper._save(room, first)
    one.state.line.clock_offset_ms = 400
    await one.state.gatekeeper.tick(EVENT)
    saved = len(await one.sql("SELECT 1 FROM queue.admission"))
    assert saved == len(await one.called())


async def test_an_acknowledgement_from_before_a_rebuild_removes_no_change(queue: Queue):
    await queue.open(fans=2, rate_per_s=0)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.advance_clock(1)
    ticked = await queue.tick_unsaved()
    unwritten = len(await queue.sorted_set("unwritten"))
    await queue.state.line.acknowledge(room, generation=room.generation - 1, up_to=ticked.changes[-1].number)
    assert len(await queue.sorted_set("unwritten")) == unwritten > 0


async def test_the_numbers_of_changes_keep_rising_across_a_loss(queue: Queue):
    await queue.open_and_call(fans=2, claim_window_s=300)
    before = float((await queue.room_hash())["change_n"])
    await queue.redis.flushall()
    await queue.tick()
    await queue.join("late")
    await queue.tick()
    await queue.tick()
    assert float((await queue.room_hash())["change_n"]) > before > 1e15


# -- a lost key --------------------------------------------------------------------------------------------------------


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


# -- a database that lost its last commits -----------------------------------------------------------------------------


async def test_the_number_of_a_lost_place_is_not_given_to_another_fan(queue: Queue):
    """Redis knows the highest number that was given, and a rebuild from the database does not lower it."""
    await queue.open(fans=5, rate_per_s=0)
    await queue.sql("DELETE FROM queue.place WHERE join_seq > 3")
    await queue.state.recovery.rebuild(EVENT, force=True)
    [joined] = await queue.join("somebody-else")
    assert joined.join_seq == 6


async def test_a_claim_of_a_lost_place_does_not_fail_others_of_its_batch(queue: Queue):
    """After a restore two fans may hold tokens of one number: the database's is called, the other joins again."""
    await queue.open_and_call("ann")
    lost, found = await queue.claim((1, "holder-of-a-lost-place"), (1, "ann"))
    assert (lost.word, lost.admission, found.word) == ("expired", None, "admitted")


async def test_a_place_that_ended_before_its_commit_reached_redis_is_called_once_at_most(queue: Queue):
    """A fan joined while Redis was away and left before it came back."""
    await queue.open("ann")
    await queue.insert_place(2, "ben")
    await queue.leave((2, "ben"))
    room = await queue.state.rooms.get(EVENT)
    await queue.state.line.commit_join(room, 0, "", {2})
    for _ in range(3):
        await queue.tick()
    before = (await queue.room_hash())["calls"]
    await queue.tick()
    assert (await queue.room_hash())["calls"] == before
    assert await queue.called() == [1]


async def test_a_place_whose_process_died_after_its_batch_was_given_up_is_not_lost(queue: Queue):
    """Its number was called, found void and taken for ended, before a slow process inserted it and died."""
    await queue.open()
    room = await queue.state.rooms.get(EVENT)
    await queue.state.line.allocate(room, 0, "slow", count=1)
    for _ in range(2):
        await queue.tick(6)
    await queue.insert_place(1, "ann")
    assert await queue.status((1, "ann")) == ["waiting"]
    await queue.tick()
    assert await queue.called() == [1]
