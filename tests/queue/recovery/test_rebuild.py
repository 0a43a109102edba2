"""Rebuilding a line in Redis: places, order and calls are kept, and writes from before the rebuild are refused."""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import text

from services.queue.line.redis_line import Allocation, LineNotReady
from services.queue.line.repository import LineRepository
from services.queue.rooms.model import RequestedBy
from tests.queue.conftest import EVENT, Queue, event_file
from tests.queue.recovery.lines import KEY, open_line, redis_state


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
