"""Losing Redis: joins go on, nobody loses a place, nobody is called twice, and the line moves again by itself."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from services.queue.app import build
from services.queue.line import insert_places, redis_line, repository
from services.queue.line.redis_line import LineNotReady
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository
from services.queue.lottery.ranking import Ranking
from services.queue.recovery import read_snapshot
from services.queue.settings import Settings
from shared.redis.client import connect
from shared.redis.scripts import Script
from tests.queue.conftest import EVENT, Queue, event_file

ROOM = f"queue:{{{EVENT}}}:room"
KEY = f"queue:{{{EVENT}}}:1"
UNREACHABLE_URL = "redis://127.0.0.1:1/0"


async def settled(queue: Queue) -> None:
    """A line with everything in it: 1 bought, 2 has a pass, 3 is called, 4 missed once, 5 left, 6-10 wait."""
    await queue.open(max_active=4, claim_window_s=300)
    await queue.crowd(10)
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
        "called": await queue.part("called"),
        "active": await queue.part("active"),
        "misses": await redis.hgetall(f"{KEY}:misses"),
        "taken": (await redis.get(f"{KEY}:0:taken") or b"").rstrip(b"\0"),
        "done": (await redis.get(f"{KEY}:0:done") or b"").rstrip(b"\0"),
        "heads": await redis.hmget(ROOM, "head_seq:0", "join_seq:0"),
    }


async def test_everything_comes_back_after_flushall(queue: Queue):
    await settled(queue)
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


async def test_two_processes_that_see_a_new_room_build_it_once_and_at_the_full_rate(
    queue: Queue, another: Callable[[], Queue]
):
    """A process that took the other's rebuild for a loss would rebuild again and start the rate at a fifth."""
    both = queue, another()
    await queue.state.rooms.apply(event_file(), actor="test")
    await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both for _ in range(3)))
    hashed = await queue.room_hash()
    assert (hashed["generation"], hashed["ramp_ms"]) == ("1", "0")
    await queue.redis.flushall()
    assert sorted(await asyncio.gather(*(one.state.recovery.rebuild(EVENT) for one in both))) == [False, True]
    assert (await queue.room_hash())["generation"] == "2", "one rebuild for one loss"


async def test_every_ended_place_of_a_long_line_comes_back_and_no_other(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(300)
    gone = [1, 7, 8, 63, 64, 65, 127, 128, 191, 192, 256, 300]
    await queue.leave(*((n, f"fan-{n}") for n in gone))
    before = await redis_state(queue)
    await queue.redis.flushall()
    await queue.tick()
    assert await redis_state(queue) == before
    bits = (await queue.redis.get(f"{KEY}:0:done")) or b""
    assert [n for n in range(1, len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == gone


async def test_a_place_missed_after_a_claim_that_only_the_database_knew_is_called_again(queue: Queue):
    await settled(queue)
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms) "
        "VALUES (:event_id, 1, 0, 2, 2, 'missed', 1)",
        event_id=EVENT,
    )
    await queue.redis.flushall()
    await queue.tick()
    assert (await queue.redis.getbit(f"{KEY}:0:taken", 2), await queue.redis.hget(f"{KEY}:misses", "0:2")) == (0, b"2")


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lost_redis_with_silent_bits_still_calls_the_line(queue: Queue, without, guarded: bool):
    if not guarded:
        without("rebuild", "'assume_live_until_ms', now + 3 * window_ms", "'assume_live_until_ms', 0")
    await queue.open(rate_per_s=0)
    await queue.crowd(5)
    await queue.redis.flushall()
    await queue.tick()
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert (await queue.called() == [1, 2, 3, 4, 5]) == guarded


async def test_a_call_the_database_never_heard_of_is_made_again(queue: Queue):
    await queue.open()
    await queue.crowd(3)
    room = await queue.state.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.state.line.tick(
        room, heartbeat_gap=False, stock=await queue.state.gatekeeper.stock_cache.get(EVENT)
    )
    assert {change.join_seq for change in ticked.changes} <= {1, 2, 3}
    await queue.sql("DELETE FROM queue.admission")
    await queue.sql("UPDATE queue.lane SET head_seq = 0")
    await queue.redis.flushall()
    await queue.tick()
    await queue.tick()
    await queue.tick()
    assert await queue.called() == [1, 2, 3]


async def test_the_watch_rebuilds_what_another_process_built(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    await queue.sql("UPDATE queue.room SET redis_instance_id = 'the one before'")
    await queue.state.rooms.refresh()
    await queue.redis.hset(ROOM, "join_seq:0", 1)
    before = (await queue.state.rooms.get(EVENT)).generation
    await queue.state.recovery.watch()
    assert (await queue.room_hash())["join_seq:0"] == "3"
    assert (await queue.state.rooms.get(EVENT)).generation == before + 1
    await queue.state.recovery.watch()
    assert (await queue.state.rooms.get(EVENT)).generation == before + 1, "once is enough"


async def test_an_older_rebuild_never_replaces_a_later_one(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    old = await queue.state.rooms.get(EVENT)
    await queue.redis.flushall()
    assert await queue.state.recovery.rebuild(EVENT)
    assert not await queue.state.recovery._write_redis(old, ramp=False)
    assert (await queue.room_hash())["generation"] == str(old.generation + 1)


async def test_two_rebuilders_at_once_are_harmless(queue: Queue, another):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    other = another()
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
    await queue.crowd(2)
    line, allocate = queue.state.line, queue.state.line.allocate
    lost: list[Allocation] = []

    async def lost_on_the_way(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if not lost and isinstance(numbers, Allocation):
            lost.append(numbers)
            await queue.redis.flushall()
            await queue.state.recovery.rebuild(EVENT)
        return numbers

    monkeypatch.setattr(line, "allocate", lost_on_the_way)
    [joined] = await queue.join("ann")
    assert joined.join_seq == 3
    await queue.configure(rate_per_s=50.0)
    tail = (await queue.tick()).lanes[0].tail_seq
    inflight = len(await queue.part("0:inflight"))
    assert (len(await queue.sql("SELECT 1 FROM queue.place")), tail, inflight) == (3, 3, 0)
    fences = [n for n in lost if n.generation == (await queue.state.rooms.get(EVENT)).generation - 1]
    assert len(fences) == 1


@pytest.mark.parametrize("guarded", [True, False])
async def test_calls_from_before_a_rebuild_are_not_written(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(
            repository,
            "IS_CURRENT_GENERATION",
            text(str(repository.IS_CURRENT_GENERATION).replace("generation = :generation", ":generation > 0")),
        )
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.state.line.tick(
        room, heartbeat_gap=False, stock=await queue.state.gatekeeper.stock_cache.get(EVENT)
    )
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    refused = False
    try:
        await queue.state.gatekeeper._save(room, ticked)
    except LineNotReady:
        refused = True
    assert refused == guarded


async def test_the_fence_waits_for_batches_being_written(queue: Queue):
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
async def test_two_gatekeepers_acknowledging_lose_no_change(queue: Queue, another, without, guarded: bool):
    if not guarded:
        without(
            "acknowledge",
            "return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])",
            "return redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(+inf')",
        )
    await queue.open(rate_per_s=0)
    await queue.crowd(4)
    await queue.configure(rate_per_s=10.0)
    one, other = queue, another()
    room = await one.state.rooms.get(EVENT)
    stock = await one.state.gatekeeper.stock_cache.get(EVENT)
    other.state.line.clock_offset_ms = one.state.line.clock_offset_ms = 200
    first = await one.state.line.tick(room, heartbeat_gap=False, stock=stock)
    other.state.line.clock_offset_ms = one.state.line.clock_offset_ms = 400
    await other.state.line.tick(room, heartbeat_gap=False, stock=stock)  # this one dies before it writes
    await one.state.gatekeeper._save(room, first)
    one.state.line.clock_offset_ms = 400
    await one.state.gatekeeper.tick(EVENT)
    written = len(await one.sql("SELECT 1 FROM queue.admission"))
    assert (written == len(await one.called())) == guarded


async def test_an_acknowledgement_from_before_a_rebuild_forgets_nothing(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.state.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.state.line.tick(
        room, heartbeat_gap=False, stock=await queue.state.gatekeeper.stock_cache.get(EVENT)
    )
    waiting = len(await queue.part("unwritten"))
    await queue.state.line.acknowledge(room, generation=room.generation - 1, up_to=ticked.changes[-1].number)
    assert len(await queue.part("unwritten")) == waiting > 0


async def test_changes_are_numbered_upwards_across_a_loss(queue: Queue):
    await queue.open(claim_window_s=300)
    await queue.crowd(2)
    await queue.tick()
    before = float((await queue.room_hash())["change_n"])
    await queue.redis.flushall()
    await queue.tick()
    await queue.join("late")
    await queue.tick()
    await queue.tick()
    assert float((await queue.room_hash())["change_n"]) > before > 1e15


@pytest.fixture
def cut_off(queue: Queue, postgres, inventory) -> Callable[[], Queue]:
    """A queue process that cannot reach Redis."""

    def make() -> Queue:
        state = build(Settings(), postgres, connect(UNREACHABLE_URL, timeout_s=0.2), inventory.client())
        return Queue(state, postgres, queue.redis, inventory)

    return make


async def test_joins_go_on_while_redis_is_away(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    away = cut_off()
    joined = await away.join("ann", "ben", "fan-2")
    assert [(j.word, j.join_seq) for j in joined[:2]] == [("joined", 4), ("joined", 5)]
    assert (joined[2].word, joined[2].join_seq) == ("known", 2)
    assert await away.status((4, "ann")) == ["waiting"]
    frame = await away.state.gatekeeper.frame(EVENT)
    assert (frame.ready, frame.lanes[0].tail_seq) == (False, 5)


async def test_two_processes_number_from_the_database_without_a_clash(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    processes = [cut_off() for _ in range(4)]
    answers = await asyncio.gather(*(p.crowd(50, name=f"p{i}") for i, p in enumerate(processes)))
    numbers = [j.join_seq for answer in answers for j in answer]
    assert sorted(numbers) == list(range(1, 201))


async def test_what_a_process_numbered_itself_is_committed_before_its_next_numbers(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.liveness_assumed_over()
    away = cut_off()
    await away.join("ann")
    away.state.line.redis = queue.state.line.redis
    away.state.line.unresponsive.clear()
    away.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    assert [j.join_seq for j in await away.join("ben")] == [2]
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert await queue.called() == [1, 2]


@pytest.mark.parametrize("guarded", [True, False])
async def test_what_was_numbered_by_a_process_that_died_is_called_all_the_same(
    queue: Queue, cut_off, without, guarded: bool
):
    if not guarded:
        without("raise_counter", ", 'assume_live_until_ms', now + 3 * r[4])", ")")
    await queue.open(rate_per_s=0)
    await queue.liveness_assumed_over()
    await cut_off().join("ann", "ben")
    await queue.state.gatekeeper.raise_counters()
    await queue.configure(rate_per_s=50.0)
    await queue.tick()
    assert (await queue.called() == [1, 2]) == guarded


async def test_a_join_during_a_rebuild_takes_a_number_from_the_database(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.redis.hset(ROOM, "ready", 0)
    assert [j.join_seq for j in await queue.join("ann")] == [3]


async def test_redis_is_rebuilt_with_exact_bitmaps(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(40)
    await queue.state.sessions.end_places(
        EVENT, 1, [(0, n) for n in (1, 8, *range(15, 34))], end_reason="left", unclaimed=True
    )
    async with queue.db.connect() as connection:
        told = await read_snapshot(connection, EVENT, Ranking(1))
    bits = told.done[0]
    assert [n for n in range(len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == [1, 8, *range(15, 34)]
    assert told.lanes == {0: (0, 40)}


async def test_after_a_loss_the_rate_ramps_up(redis: Redis, queue: Queue, postgres, inventory):
    state = build(Settings(ramp_after_loss=True), postgres, queue.state.line.redis, inventory.client())
    ramping = Queue(state, postgres, redis, inventory)
    await ramping.open(rate_per_s=10, burst=1, max_active=1000)
    await ramping.crowd(400)
    await redis.flushall()
    await ramping.tick()
    first = (await ramping.tick(1.0)).rate_per_s
    for _ in range(30):
        await ramping.tick(1.0)
    assert first < 3
    assert (await ramping.tick(1.0)).rate_per_s == 10


def test_every_script_binds_exactly_its_header():
    scripts = [value for value in vars(redis_line).values() if isinstance(value, Script)]
    assert len(scripts) == 14
    for script in scripts:
        values = {slot.name: ["1"] if slot.is_list else "1" for slot in (*script.keys, *script.arguments)}
        keys, arguments = script.bind(values)
        assert f"KEYS[{len(keys)}]" in script.source or script.keys[-1].is_list
        with pytest.raises(TypeError):
            script.bind({**values, "unknown": "1"})
        assert arguments
        assert "\nlocal time = redis.call('TIME')" not in script.source or "clock_offset_ms" in values
