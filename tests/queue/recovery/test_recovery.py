"""Losing the engine: joins go on, nobody loses a place, nobody is called twice, and the line moves again by itself."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from services.queue.app import build
from services.queue.line import insert_places, repository
from services.queue.line import redis_line as line_room
from services.queue.line.redis_line import LineNotReady
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository
from services.queue.lottery.ranking import Ranking
from services.queue.recovery import ask
from services.queue.settings import Settings
from shared.redis.client import connect
from shared.redis.scripts import Script
from tests.queue.conftest import EVENT, Queue, event_file

ROOM = f"queue:{{{EVENT}}}:room"
KEY = f"queue:{{{EVENT}}}:1"
NOWHERE = "redis://127.0.0.1:1/0"


async def settled(queue: Queue) -> None:
    """A line with everything in it: 1 bought, 2 has a pass, 3 is called, 4 missed once, 5 left, 6-10 wait."""
    await queue.open(max_active=4, claim_window_s=300)
    await queue.crowd(10)
    await queue.turn()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.running.sessions.close(EVENT, 1, [(0, 1)], how="completed", unclaimed=False)
    await queue.leave((5, "fan-5"))
    await queue.redis.zadd(f"{KEY}:called", {"0:4": 1})
    await queue.configure(max_active=2)
    await queue.turn()


async def engine_state(queue: Queue) -> dict:
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
    before = await engine_state(queue)
    assert before["misses"] == {b"0:4": b"1", b"mark": b"0"}
    await queue.redis.flushall()
    frame = await queue.turn()
    assert frame.ready
    assert await engine_state(queue) == before
    await queue.heard(4)
    await queue.configure(max_active=100)
    await queue.turn()
    await queue.turn()
    calls = await queue.sql(
        "SELECT join_seq, count(*) FROM queue.admission WHERE state = 'called' GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in calls] == [(n, 1) for n in (3, 4, 6, 7, 8, 9, 10)]
    assert (await queue.status((2, "fan-2"), (1, "fan-1"), (5, "fan-5"))) == ["admitted", "completed", "left"]


async def test_two_processes_that_find_a_new_room_fill_it_once_and_at_the_full_rate(
    queue: Queue, another: Callable[[], Queue]
):
    """Whoever took the other's filling for a loss would fill again, and start the rate at a fifth."""
    both = queue, another()
    await queue.running.rooms.apply(event_file(), actor="test")
    await asyncio.gather(*(one.running.recovery.rebuild(EVENT) for one in both for _ in range(3)))
    hashed = await queue.room_hash()
    assert (hashed["fill"], hashed["ramp_ms"]) == ("1", "0")
    await queue.redis.flushall()
    assert sorted(await asyncio.gather(*(one.running.recovery.rebuild(EVENT) for one in both))) == [False, True]
    assert (await queue.room_hash())["fill"] == "2", "a loss is filled, once"


async def test_every_ended_place_of_a_long_line_comes_back_and_no_other(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(300)
    gone = [1, 7, 8, 63, 64, 65, 127, 128, 191, 192, 256, 300]
    await queue.leave(*((n, f"fan-{n}") for n in gone))
    before = await engine_state(queue)
    await queue.redis.flushall()
    await queue.turn()
    assert await engine_state(queue) == before
    bits = (await queue.redis.get(f"{KEY}:0:done")) or b""
    assert [n for n in range(1, len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == gone


async def test_a_place_missed_after_a_claim_that_only_the_ledger_knew_is_called_again(queue: Queue):
    await settled(queue)
    await queue.sql(
        "INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms) "
        "VALUES (:event_id, 1, 0, 2, 2, 'missed', 1)",
        event_id=EVENT,
    )
    await queue.redis.flushall()
    await queue.turn()
    assert (await queue.redis.getbit(f"{KEY}:0:taken", 2), await queue.redis.hget(f"{KEY}:misses", "0:2")) == (0, b"2")


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lost_engine_with_silent_bits_still_calls_the_line(queue: Queue, without, guarded: bool):
    if not guarded:
        without("fill", "'assume_live_until_ms', now + 3 * window_ms", "'assume_live_until_ms', 0")
    await queue.open(rate_per_s=0)
    await queue.crowd(5)
    await queue.redis.flushall()
    await queue.turn()
    await queue.configure(rate_per_s=50.0)
    await queue.turn()
    assert (await queue.called() == [1, 2, 3, 4, 5]) == guarded


async def test_a_call_the_ledger_never_heard_of_is_made_again(queue: Queue):
    await queue.open()
    await queue.crowd(3)
    room = await queue.running.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.running.line.tick(room, deaf=False, stock=await queue.running.gatekeeper.board.of(EVENT))
    assert {change.join_seq for change in ticked.changes} <= {1, 2, 3}
    await queue.sql("DELETE FROM queue.admission")
    await queue.sql("UPDATE queue.lane SET head_seq = 0")
    await queue.redis.flushall()
    await queue.turn()
    await queue.turn()
    await queue.turn()
    assert await queue.called() == [1, 2, 3]


async def test_the_watch_fills_what_another_process_filled(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    await queue.sql("UPDATE queue.room SET redis_instance_id = 'the one before'")
    await queue.running.rooms.refresh()
    await queue.redis.hset(ROOM, "join_seq:0", 1)
    before = (await queue.running.rooms.get(EVENT)).fill
    await queue.running.recovery.watch()
    assert (await queue.room_hash())["join_seq:0"] == "3"
    assert (await queue.running.rooms.get(EVENT)).fill == before + 1
    await queue.running.recovery.watch()
    assert (await queue.running.rooms.get(EVENT)).fill == before + 1, "once is enough"


async def test_an_older_filling_never_replaces_a_later_one(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    old = await queue.running.rooms.get(EVENT)
    await queue.redis.flushall()
    assert await queue.running.recovery.rebuild(EVENT)
    assert not await queue.running.recovery._fill(old, ramp=False)
    assert (await queue.room_hash())["fill"] == str(old.fill + 1)


async def test_two_rebuilders_at_once_are_harmless(queue: Queue, another):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    other = another()
    await other.running.rooms.refresh()
    await queue.redis.flushall()
    await asyncio.gather(*(one.running.recovery.rebuild(EVENT) for one in (queue, other)))
    await queue.running.recovery.rebuild(EVENT)
    fields = await queue.room_hash()
    assert (fields["ready"], fields["join_seq:0"]) == ("1", "3")
    assert [j.join_seq for j in await other.join("late")] == [4]


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_batch_numbered_before_a_filling_is_refused_and_numbered_again(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        assert " AND r.fill = $7::bigint" in insert_places.PLACE
        loose = insert_places.PLACE.replace(" AND r.fill = $7::bigint", " AND (r.fill = $7::bigint OR true)")
        monkeypatch.setattr(insert_places, "PLACE", loose)
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    line, allocate = queue.running.line, queue.running.line.allocate
    lost: list[Allocation] = []

    async def lost_on_the_way(room, lane, batch_id, *, count):
        numbers = await allocate(room, lane, batch_id, count=count)
        if not lost and isinstance(numbers, Allocation):
            lost.append(numbers)
            await queue.redis.flushall()
            await queue.running.recovery.rebuild(EVENT)
        return numbers

    monkeypatch.setattr(line, "allocate", lost_on_the_way)
    [joined] = await queue.join("ann")
    assert joined.join_seq == 3
    await queue.configure(rate_per_s=50.0)
    tail = (await queue.turn()).lanes[0].tail_seq
    inflight = len(await queue.part("0:inflight"))
    assert (len(await queue.sql("SELECT 1 FROM queue.place")), tail, inflight) == (3, 3, 0)
    fences = [n for n in lost if n.fill == (await queue.running.rooms.get(EVENT)).fill - 1]
    assert len(fences) == 1


@pytest.mark.parametrize("guarded", [True, False])
async def test_calls_from_before_a_filling_are_not_written(
    queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    if not guarded:
        monkeypatch.setattr(
            repository, "FILLED_BY", text(str(repository.FILLED_BY).replace("fill = :fill", ":fill > 0"))
        )
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.running.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.running.line.tick(room, deaf=False, stock=await queue.running.gatekeeper.board.of(EVENT))
    await queue.redis.flushall()
    await queue.running.recovery.rebuild(EVENT)
    refused = False
    try:
        await queue.running.gatekeeper._write(room, ticked)
    except LineNotReady:
        refused = True
    assert refused == guarded


async def test_the_fence_waits_for_batches_being_written(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.redis.flushall()
    async with queue.db.begin() as connection:
        await LineRepository(connection, EVENT, 1).fence()
        rebuilding = asyncio.create_task(queue.running.recovery.rebuild(EVENT))
        done, _ = await asyncio.wait([rebuilding], timeout=0.2)
        assert not done
        fill = await connection.scalar(text("SELECT fill FROM queue.room"))
    assert await rebuilding
    assert (await queue.running.rooms.get(EVENT)).fill == fill + 1


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
    room = await one.running.rooms.get(EVENT)
    stock = await one.running.gatekeeper.board.of(EVENT)
    other.running.line.clock_offset_ms = one.running.line.clock_offset_ms = 200
    first = await one.running.line.tick(room, deaf=False, stock=stock)
    other.running.line.clock_offset_ms = one.running.line.clock_offset_ms = 400
    await other.running.line.tick(room, deaf=False, stock=stock)  # this one dies before it writes
    await one.running.gatekeeper._write(room, first)
    one.running.line.clock_offset_ms = 400
    await one.running.gatekeeper.turn(EVENT)
    written = len(await one.sql("SELECT 1 FROM queue.admission"))
    assert (written == len(await one.called())) == guarded


async def test_an_acknowledgement_from_before_a_filling_forgets_nothing(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.configure(rate_per_s=50.0)
    room = await queue.running.rooms.get(EVENT)
    queue.later(1)
    ticked = await queue.running.line.tick(room, deaf=False, stock=await queue.running.gatekeeper.board.of(EVENT))
    waiting = len(await queue.part("unwritten"))
    await queue.running.line.acknowledge(room, fill=room.fill - 1, up_to=ticked.changes[-1].number)
    assert len(await queue.part("unwritten")) == waiting > 0


async def test_changes_are_numbered_upwards_across_a_loss(queue: Queue):
    await queue.open(claim_window_s=300)
    await queue.crowd(2)
    await queue.turn()
    before = float((await queue.room_hash())["change_n"])
    await queue.redis.flushall()
    await queue.turn()
    await queue.join("late")
    await queue.turn()
    await queue.turn()
    assert float((await queue.room_hash())["change_n"]) > before > 1e15


@pytest.fixture
def cut_off(queue: Queue, postgres, inventory) -> Callable[[], Queue]:
    """A queue process that cannot reach the engine."""

    def make() -> Queue:
        running = build(Settings(), postgres, connect(NOWHERE, timeout_s=0.2), inventory.client())
        return Queue(running, postgres, queue.redis, inventory)

    return make


async def test_joins_go_on_while_the_engine_is_away(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    away = cut_off()
    joined = await away.join("ann", "ben", "fan-2")
    assert [(j.word, j.join_seq) for j in joined[:2]] == [("joined", 4), ("joined", 5)]
    assert (joined[2].word, joined[2].join_seq) == ("known", 2)
    assert await away.status((4, "ann")) == ["waiting"]
    frame = await away.running.gatekeeper.frame(EVENT)
    assert (frame.ready, frame.lanes[0].tail_seq) == (False, 5)


async def test_two_processes_number_from_the_ledger_without_a_clash(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    processes = [cut_off() for _ in range(4)]
    answers = await asyncio.gather(*(p.crowd(50, name=f"p{i}") for i, p in enumerate(processes)))
    numbers = [j.join_seq for answer in answers for j in answer]
    assert sorted(numbers) == list(range(1, 201))


async def test_what_a_process_numbered_itself_lands_before_its_next_numbers(queue: Queue, cut_off):
    await queue.open(rate_per_s=0)
    await queue.ears_open()
    away = cut_off()
    await away.join("ann")
    away.running.line.redis = queue.running.line.redis
    away.running.line.silent.clear()
    away.running.line.clock_offset_ms = queue.running.line.clock_offset_ms
    assert [j.join_seq for j in await away.join("ben")] == [2]
    await queue.configure(rate_per_s=50.0)
    await queue.turn()
    assert await queue.called() == [1, 2]


@pytest.mark.parametrize("guarded", [True, False])
async def test_what_was_numbered_by_a_process_that_died_is_called_all_the_same(
    queue: Queue, cut_off, without, guarded: bool
):
    if not guarded:
        without("raise", ", 'assume_live_until_ms', now + 3 * r[4])", ")")
    await queue.open(rate_per_s=0)
    await queue.ears_open()
    await cut_off().join("ann", "ben")
    await queue.running.gatekeeper.raise_counters()
    await queue.configure(rate_per_s=50.0)
    await queue.turn()
    assert (await queue.called() == [1, 2]) == guarded


async def test_a_join_during_a_filling_takes_a_number_from_the_ledger(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(2)
    await queue.redis.hset(ROOM, "ready", 0)
    assert [j.join_seq for j in await queue.join("ann")] == [3]


async def test_the_engine_is_filled_with_exact_bitmaps(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(40)
    await queue.running.sessions.close(EVENT, 1, [(0, n) for n in (1, 8, *range(15, 34))], how="left", unclaimed=True)
    async with queue.db.connect() as connection:
        told = await ask(connection, EVENT, Ranking(1))
    bits = told.done[0]
    assert [n for n in range(len(bits) * 8) if bits[n // 8] & 128 >> n % 8] == [1, 8, *range(15, 34)]
    assert told.lanes == {0: (0, 40)}


async def test_after_a_loss_the_rate_ramps_up(redis: Redis, queue: Queue, postgres, inventory):
    running = build(Settings(ramp_after_loss=True), postgres, queue.running.line.redis, inventory.client())
    ramping = Queue(running, postgres, redis, inventory)
    await ramping.open(rate_per_s=10, burst=1, max_active=1000)
    await ramping.crowd(400)
    await redis.flushall()
    await ramping.turn()
    first = (await ramping.turn(1.0)).rate_per_s
    for _ in range(30):
        await ramping.turn(1.0)
    assert first < 3
    assert (await ramping.turn(1.0)).rate_per_s == 10


def test_every_script_binds_exactly_its_header():
    scripts = [value for value in vars(line_room).values() if isinstance(value, Script)]
    assert len(scripts) == 14
    for script in scripts:
        values = {slot.name: ["1"] if slot.is_list else "1" for slot in (*script.keys, *script.arguments)}
        keys, arguments = script.bind(values)
        assert f"KEYS[{len(keys)}]" in script.source or script.keys[-1].is_list
        with pytest.raises(TypeError):
            script.bind({**values, "unknown": "1"})
        assert arguments
        assert "\nlocal time = redis.call('TIME')" not in script.source or "clock_offset_ms" in values
