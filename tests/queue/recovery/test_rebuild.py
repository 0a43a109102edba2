"""Rebuilding a line in Redis: places, order and calls are kept, and writes from before the rebuild are refused."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from services.queue.line import insert_places
from services.queue.line.redis_line import LineNotReady
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository
from services.queue.lottery.ranking import Ranking
from services.queue.recovery import read_snapshot
from tests.queue.conftest import EVENT, ROOM_KEY, Queue, event_file

KEY = f"queue:{{{EVENT}}}:1"


async def open_line(queue: Queue) -> None:
    """A line with places in all states: 1 bought, 2 has a pass, 3 is called, 4 missed once, 5 left, 6-10 wait."""
    await queue.open(max_active=4, claim_window_s=300)
    await queue.join_fans(10)
    await queue.tick()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.state.sessions.end_places(EVENT, 1, [(0, 1)], end_reason="completed", unclaimed=False)
    await queue.leave((5, "fan-5"))
    await queue.redis.zadd(f"{KEY}:called", {"0:4": 1})
    await queue.configure(max_active=2)
    await queue.tick()


async def redis_state(queue: Queue) -> dict:
    redis = queue.redis
    return {
        "called": await queue.sorted_set("called"),
        "active": await queue.sorted_set("active"),
        "misses": await redis.hgetall(f"{KEY}:misses"),
        "taken": (await redis.get(f"{KEY}:0:taken") or b"").rstrip(b"\0"),
        "done": (await redis.get(f"{KEY}:0:done") or b"").rstrip(b"\0"),
        "heads": await redis.hmget(ROOM_KEY, "head_seq:0", "join_seq:0"),
    }


async def test_flushall_loses_no_state_of_the_line(queue: Queue):
    await open_line(queue)
    before = await redis_state(queue)
    assert before["misses"] == {b"0:4": b"1", b"mark": b"0"}
    await queue.redis.flushall()
    frame = await queue.tick()
    assert frame.ready
    assert await redis_state(queue) == before
    await queue.heartbeat(4)
    await queue.configure(max_active=100)
    await queue.tick()
    await queue.tick()
    calls = await queue.sql(
        "SELECT join_seq, count(*) FROM queue.admission WHERE state = 'called' GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in calls] == [(n, 1) for n in (3, 4, 6, 7, 8, 9, 10)]
    assert (await queue.status((2, "fan-2"), (1, "fan-1"), (5, "fan-5"))) == ["admitted", "completed", "left"]


async def test_two_processes_build_a_new_room_once_and_at_the_full_rate(queue: Queue, new_queue: Callable[[], Queue]):
    """A process that took the other's rebuild for a loss would rebuild again and start the rate at a fifth."""
    both = queue, new_queue()
    await queue.state.rooms.apply(event_file(), actor="test")
    await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both for _ in range(3)))
    fields = await queue.room_hash()
    assert (fields["generation"], fields["ramp_ms"]) == ("1", "0")
    await queue.redis.flushall()
    assert sorted(await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both))) == [False, True]
    assert (await queue.room_hash())["generation"] == "2", "one rebuild for one loss"


async def test_a_rebuild_of_a_long_line_restores_exactly_the_ended_places(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join_fans(300)
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


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_rebuilt_line_calls_fans_before_their_next_heartbeat(queue: Queue, remove_guard, guarded: bool):
    if not guarded:
        remove_guard("rebuild", "'assume_live_until_ms', now + 3 * window_ms", "'assume_live_until_ms', 0")
    await queue.open(rate_per_s=0)
    await queue.join_fans(5)
    await queue.redis.flushall()
    await queue.tick()
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert (await queue.called() == [1, 2, 3, 4, 5]) == guarded


async def test_a_call_that_was_never_saved_is_made_again(queue: Queue):
    await queue.open()
    await queue.join_fans(3)
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


async def test_the_watch_rebuilds_a_line_built_on_another_redis_instance(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join_fans(3)
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
    await queue.open(rate_per_s=0)
    await queue.join_fans(3)
    old = await queue.state.rooms.get(EVENT)
    await queue.redis.flushall()
    assert await queue.state.recovery.rebuild(EVENT)
    assert not await queue.state.recovery._write_redis(old, ramp=False)
    assert (await queue.room_hash())["generation"] == str(old.generation + 1)


async def test_two_concurrent_rebuilds_leave_a_complete_line(queue: Queue, new_queue):
    await queue.open(rate_per_s=0)
    await queue.join_fans(3)
    other = new_queue()
    await other.state.rooms.refresh()
    await queue.redis.flushall()
    await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in (queue, other)))
    await queue.state.recovery.rebuild(EVENT)
    fields = await queue.room_hash()
    assert (fields["ready"], fields["join_seq:0"]) == ("1", "3")
    assert [j.join_seq for j in await other.join("late")] == [4]


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_batch_numbered_before_a_rebuild_is_refused_and_numbered_again(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        assert " AND r.generation = $7::bigint" in insert_places.INSERT_PLACES
        loose = insert_places.INSERT_PLACES.replace(
            " AND r.generation = $7::bigint", " AND (r.generation = $7::bigint OR true)"
        )
        monkeypatch.setattr(insert_places, "INSERT_PLACES", loose)
    await queue.open(rate_per_s=0)
    await queue.join_fans(2)
    line, allocate = queue.state.line, queue.state.line.allocate
    lost: list[Allocation] = []

    async def lose_redis_after(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if not lost and numbers.outcome == "ok":
            lost.append(numbers)
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
    fences = [n for n in lost if n.generation == (await queue.state.rooms.get(EVENT)).generation - 1]
    assert len(fences) == 1


@pytest.mark.parametrize("guarded", [True, False])
async def test_calls_from_before_a_rebuild_are_not_saved(queue: Queue, remove_sql_guard, guarded: bool):
    if not guarded:
        remove_sql_guard("IS_CURRENT_GENERATION", "generation = :generation", ":generation > 0")
    await queue.open(rate_per_s=0)
    await queue.join_fans(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.advance_clock(1)
    ticked = await queue.tick_unsaved()
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    refused = False
    try:
        await queue.state.gatekeeper._save(room, ticked)
    except LineNotReady:
        refused = True
    assert refused == guarded


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


@pytest.mark.parametrize("guarded", [True, False])
async def test_an_acknowledgement_keeps_the_changes_of_another_gatekeeper(
    queue: Queue, new_queue, remove_guard, guarded: bool
):
    if not guarded:
        remove_guard(
            "acknowledge",
            "return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])",
            "return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(+inf')",
        )
    await queue.open(rate_per_s=0)
    await queue.join_fans(4)
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
    assert (saved == len(await one.called())) == guarded


async def test_an_acknowledgement_from_before_a_rebuild_removes_no_change(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join_fans(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.advance_clock(1)
    ticked = await queue.tick_unsaved()
    unwritten = len(await queue.sorted_set("unwritten"))
    await queue.state.line.acknowledge(room, generation=room.generation - 1, up_to=ticked.changes[-1].number)
    assert len(await queue.sorted_set("unwritten")) == unwritten > 0


async def test_the_numbers_of_changes_keep_rising_across_a_loss(queue: Queue):
    await queue.open(claim_window_s=300)
    await queue.join_fans(2)
    await queue.tick()
    before = float((await queue.room_hash())["change_n"])
    await queue.redis.flushall()
    await queue.tick()
    await queue.join("late")
    await queue.tick()
    await queue.tick()
    assert float((await queue.room_hash())["change_n"]) > before > 1e15


async def test_the_snapshot_has_a_bit_for_each_ended_place_and_no_other(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join_fans(40)
    await queue.state.sessions.end_places(
        EVENT, 1, [(0, n) for n in (1, 8, *range(15, 34))], end_reason="left", unclaimed=True
    )
    async with queue.db.connect() as connection:
        snapshot = await read_snapshot(connection, EVENT, Ranking(1))
    bits = snapshot.done[0]
    assert [n for n in range(len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == [1, 8, *range(15, 34)]
    assert snapshot.lanes == {0: (0, 40)}


async def test_after_a_loss_the_rate_ramps_up(redis: Redis, new_queue):
    ramping = new_queue(ramp_after_loss=True)
    await ramping.open(rate_per_s=10, burst=1, max_active=1000)
    await ramping.join_fans(400)
    await redis.flushall()
    await ramping.tick()
    first = (await ramping.tick(1.0)).rate_per_s
    for _ in range(30):
        await ramping.tick(1.0)
    assert first < 3
    assert (await ramping.tick(1.0)).rate_per_s == 10
