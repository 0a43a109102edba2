"""The tick: never faster than the rate, never out of order, never more than may be active; and no-shows cost nobody."""

import asyncio
import itertools
import random

import pytest

from services.queue.line.replies import Stock
from tests.queue.conftest import EVENT, Queue


async def calls_in(queue: Queue) -> list[tuple[int, int]]:
    """Every call so far: number, and when it was called (ms, taken from its deadline)."""
    rows = await queue.sql("SELECT join_seq, deadline_ms - 120000 FROM queue.admission ORDER BY 2, 1")
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("guarded", [True, False])
async def test_half_a_call_per_second_is_one_every_two_seconds(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "set.bucket_ms = now")
    await queue.open(rate_per_s=0.5, burst=1)
    await queue.crowd(30)
    called = []
    for _ in range(100):
        await queue.tick(0.2)
        called.append(len(await queue.called()))
    assert (called[-1] in (9, 10)) == guarded
    if guarded:
        gaps = [i for i in range(1, 100) if called[i] > called[i - 1]]
        assert all(later - earlier in (9, 10, 11) for earlier, later in itertools.pairwise(gaps))


@pytest.mark.parametrize("burst", [1, 300])
async def test_a_thousand_calls_per_second_are_never_exceeded(queue: Queue, burst: int):
    await queue.open(rate_per_s=1000, burst=burst, max_active=100_000)
    started = int((await queue.room_hash())["bucket_ms"])
    for part in range(2):
        await queue.crowd(1000, name=f"part-{part}")
    luck = random.Random(7)
    while len(calls := await calls_in(queue)) < 1500:
        await queue.tick(luck.choice([0.01, 0.1, 0.2, 0.3]))
    for seq, at_ms in calls:
        assert seq <= at_ms - started + 1, "more calls than the rate allows since the room opened"
    span_ms = calls[-1][1] - started
    assert len(calls) >= span_ms * 0.95, "a late tick is made good"


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_pause_saves_no_calls_up(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "if calling and was_calling then", "if true then")
        without("configure", "  tokens = 0\n", "")
    await queue.open(rate_per_s=10, burst=50)
    await queue.crowd(100)
    rooms, keeper = queue.state.rooms, queue.state.gatekeeper
    await keeper.apply_config(await rooms.transition(EVENT, "pause", actor="t", reason=None))
    before = len(await queue.called())
    await queue.tick(60)
    assert len(await queue.called()) == before
    await keeper.apply_config(await rooms.transition(EVENT, "resume", actor="t", reason=None))
    await queue.tick(0.2)
    assert (len(await queue.called()) - before <= 3) == guarded


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_new_rate_never_reaches_back(queue: Queue, without, guarded: bool):
    if not guarded:
        without("configure", "'bucket_ms', now)", "'bucket_ms', r[6])")
    await queue.open(rate_per_s=0, burst=500)
    await queue.crowd(500)
    await queue.tick()
    queue.later(10)
    await queue.configure(rate_per_s=100.0)
    await queue.tick(1.0)
    assert (len(await queue.called()) in range(80, 120)) == guarded


async def test_calls_follow_the_order_of_joining(queue: Queue):
    await queue.open(rate_per_s=50, burst=10)
    await queue.crowd(200)
    for _ in range(25):
        await queue.tick(0.2)
    assert [seq for seq, _ in await calls_in(queue)] == list(range(1, len(await calls_in(queue)) + 1))
    assert len(await calls_in(queue)) == 200


@pytest.mark.parametrize("missing", ["", "bucket", "head and taken"])
async def test_two_gatekeepers_at_once_call_nobody_twice_and_no_faster(queue: Queue, another, without, missing: str):
    """Without a bucket that moves forward each of them refills it anew; without head and bits each begins anew."""
    if missing == "bucket":
        without("tick", "set.bucket_ms = now")
    elif missing:
        without("tick", "  lane.head = math.max(lane.head, last)\n")
        without("tick", "    redis.call('SETBIT', lane.taken, seq, 1)\n")
    await queue.open(rate_per_s=100, burst=20)
    started = int((await queue.room_hash())["bucket_ms"])
    await queue.crowd(600)
    other = another()
    for _ in range(12):
        queue.later(0.2)
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
        await asyncio.gather(*(one.state.gatekeeper.tick(EVENT) for one in (queue, other, queue, other)))
    calls, fields = [seq for seq, _ in await calls_in(queue)], await queue.room_hash()
    span_s = (int(fields["last_ms"]) - started) / 1000
    assert (int(fields["calls"]) <= 20 + 100 * span_s) == (missing != "bucket")
    assert (int(fields["calls"]) == len(calls)) == (missing != "head and taken"), "each call is another place"
    assert calls == list(range(1, len(calls) + 1))
    assert missing or len(calls) >= 200


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_clock_never_goes_back(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "if now + APART_MS >= last_ms then", "if false then")
    await queue.open(rate_per_s=10, burst=1000)
    await queue.crowd(500)
    for _ in range(15):
        await queue.tick(0.4)
        await queue.tick(-0.4)
    assert (len(await queue.called()) <= 40) == guarded


@pytest.mark.parametrize("guarded", [True, False])
async def test_called_and_active_never_pass_the_limit(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "number('max_active') - active_n - called_n", "number('max_active') - active_n")
    await queue.open(max_active=7)
    await queue.crowd(50)
    await queue.tick()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    for _ in range(5):
        await queue.tick()
    busy = len(await queue.part("called")) + len(await queue.part("active"))
    assert (busy == 7) == guarded


async def test_lowering_the_limit_below_what_is_active_calls_nobody(queue: Queue):
    await queue.open(max_active=5)
    await queue.crowd(20)
    await queue.tick()
    await queue.configure(max_active=2)
    await queue.tick()
    assert await queue.called() == [1, 2, 3, 4, 5]


async def test_silent_places_are_skipped_and_called_when_they_return(queue: Queue):
    await queue.open(rate_per_s=5, burst=5)
    await queue.crowd(40)
    await queue.liveness_assumed_over()
    first = set(await queue.called())
    await queue.tick(0.01)
    awake = list(range(20, 30))
    await queue.heartbeat(*awake)
    await queue.tick(2)
    await queue.tick(2)
    assert set(await queue.called()) - first <= set(awake) | {1}
    await queue.heartbeat(8, *awake)
    await queue.tick(2)
    await queue.tick(2)
    assert 8 in await queue.called()


@pytest.mark.parametrize("guarded", [True, False])
async def test_silence_is_not_absence_while_heartbeats_may_be_lost(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "if ARGV[2] == '1' then", "if false then")
    await queue.open(rate_per_s=0)
    await queue.crowd(10)
    await queue.liveness_assumed_over()
    queue.state.gatekeeper._heartbeat_gaps = {EVENT}
    await queue.configure(rate_per_s=50.0)
    queue.state.gatekeeper._heartbeat_gaps = set()
    await queue.tick()
    await queue.tick()
    assert (await queue.called() == list(range(1, 11))) == guarded


async def test_a_reporter_that_falls_silent_leaves_a_gap_in_every_room_once(queue: Queue):
    from shared.contracts.queue import HeartbeatReport

    await queue.open()
    life, rooms = queue.state.heartbeats, list(queue.state.rooms.known.values())
    assert await life.has_gap(rooms) == {EVENT}, "nobody reports"
    await life.report(HeartbeatReport(reporter="gateway-1", events=[]))
    await life.report(HeartbeatReport(reporter="gateway-2", events=[]))
    assert await life.has_gap(rooms) == set()
    queue.later(20)
    await life.report(HeartbeatReport(reporter="gateway-1", events=[]))
    queue.later(5)
    assert await life.has_gap(rooms) == {EVENT}, "gateway-2 is overdue by half a window"
    await life.forget_dead(rooms)
    assert await life.has_gap(rooms) == set()
    await life.report(HeartbeatReport(reporter="gateway-3", events=[]))
    await life.report(HeartbeatReport(reporter="gateway-3", final=True, events=[]))
    queue.later(15)
    assert await life.has_gap(rooms) == set(), "who says goodbye is not missed"


async def test_an_unclaimed_call_frees_its_slot_and_the_second_miss_ends_the_place(queue: Queue):
    await queue.open(max_active=1, claim_window_s=10)
    await queue.join("sleepy", "next")
    await queue.tick()
    assert await queue.called() == [1]
    await queue.tick(10.1)
    assert await queue.called() == [2], "the slot went on at once"
    await queue.claim((2, "next"))
    await queue.leave((2, "next"))
    await queue.heartbeat(1)
    await queue.tick()
    assert await queue.called() == [1], "back once, as a returner"
    await queue.tick(10.1)
    await queue.heartbeat(1)
    await queue.tick(1)
    assert await queue.called() == []
    [told] = await queue.state.claims.status(queue.places((1, "sleepy")))
    assert (told.status, told.why) == ("expired", "unclaimed")
    rows = await queue.sql("SELECT call, state FROM queue.admission WHERE join_seq = 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [(1, "missed"), (2, "missed")]
    assert [j.join_seq for j in await queue.join("sleepy")] == [3], "who was ended may join again at the tail"


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
async def test_returners_have_their_share_at_any_rate(queue: Queue, share: float):
    await queue.open(rate_per_s=1, burst=3, returning_share=share)
    await queue.crowd(200)
    await queue.liveness_assumed_over()
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "head_seq:0", 100)
    before = set(await queue.called())
    for _ in range(40):
        await queue.heartbeat(*range(1, 201))
        await queue.tick(1.0)
    called = set(await queue.called()) - before
    returners = sum(seq <= 100 for seq in called)
    assert len(called) in range(37, 44)
    assert abs(returners - share * len(called)) <= 1.5


async def test_returners_may_take_what_the_main_line_leaves(queue: Queue):
    await queue.open(returning_share=0.0)
    await queue.crowd(5)
    await queue.liveness_assumed_over()
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "head_seq:0", 5)
    await queue.heartbeat(2, 4)
    await queue.tick()
    assert {2, 4} <= set(await queue.called())


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_scan_is_bounded_and_goes_on_where_it_stopped(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "MAIN_BYTES, RETURNERS_BYTES = 32768", "MAIN_BYTES, RETURNERS_BYTES = 1e9")
    await queue.open(rate_per_s=0)
    room, line = await queue.state.rooms.get(EVENT), queue.state.line
    await queue.liveness_assumed_over()
    far = 600_000
    await queue.sql(
        "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES (:e, 1, 0, :n, 'far')", e=EVENT, n=far
    )
    await line.commit_join(room, 0, "", [far])
    await queue.configure(rate_per_s=50.0)
    heads = [(await queue.tick()).lanes[0].head_seq for _ in range(4)]
    assert (heads[0] < far) == guarded
    assert not guarded or all(later - earlier <= 8 * 32768 for earlier, later in itertools.pairwise(heads))
    assert heads[-1] == far
    assert await queue.called() == [far]


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_search_for_returners_is_bounded_and_wraps(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "RETURNERS_BYTES = 32768, 8192", "RETURNERS_BYTES = 32768, 1e9")
    await queue.open(rate_per_s=0)
    await queue.liveness_assumed_over()
    far = 1_000_000
    await queue.sql(
        "INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES (:e, 1, 0, :n, 'far')", e=EVENT, n=far
    )
    await queue.state.line.commit_join(await queue.state.rooms.get(EVENT), 0, "", [far])
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "head_seq:0", far)
    await queue.configure(rate_per_s=50.0)
    turns = 0
    while not await queue.called():
        await queue.tick()
        turns += 1
    assert (turns > 5) == guarded, "at most 16 KiB a turn: by their share, and in what the main line leaves"


@pytest.mark.parametrize("guarded", [True, False])
async def test_nobody_is_called_for_what_is_gone(queue: Queue, without, guarded: bool):
    if not guarded:
        without(
            "tick",
            "available - called_n - math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))",
            "available",
        )
    await queue.open(rate_per_s=0)
    await queue.crowd(20)
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "rate_per_s", 1000)
    room, line = await queue.state.rooms.get(EVENT), queue.state.line
    for _ in range(3):
        queue.later(0.2)
        await line.tick(room, heartbeat_gap=False, stock=Stock(available=3, holders_holding=0, level="plenty"))
    assert (len(await queue.called()) == 3) == guarded
    queue.later(0.2)
    ticked = await line.tick(
        room, heartbeat_gap=False, stock=Stock(available=0, holders_holding=1, level="last_chance")
    )
    assert ticked.state["shown"] == "last_chance"
    queue.later(0.2)
    ticked = await line.tick(room, heartbeat_gap=False, stock=Stock())
    assert (ticked.state["shown"], ticked.state["called"] == 3) == ("last_chance", guarded)
    queue.later(0.2)
    ticked = await line.tick(room, heartbeat_gap=False, stock=Stock(available=9, holders_holding=0, level="plenty"))
    assert ticked.state["shown"] == "open"
    assert not guarded or ticked.state["called"] == 9


async def test_the_schedule_moves_the_room_by_redis_time(queue: Queue):
    from datetime import timedelta

    from shared.runtime.clock import now_ms, to_datetime

    now = to_datetime(now_ms())
    await queue.open(
        queue_opens_at=(now + timedelta(seconds=10)).isoformat(),
        sale_starts_at=(now + timedelta(seconds=20)).isoformat(),
        sale_ends_at=(now + timedelta(seconds=60)).isoformat(),
    )
    assert [j.word for j in await queue.join("early")] == ["closed"]
    assert (await queue.tick(12)).state == "prequeue"
    assert [j.status for j in await queue.join("ann")] == ["prequeue"]
    assert await queue.status((1, "ann")) == ["prequeue"]
    frame = await queue.tick(10)
    assert (frame.state, await queue.called()) == ("open", [])
    await queue.tick(0.2)
    assert await queue.called() == [1]
    assert (await queue.tick(60)).state == "closed"
    assert [j.word for j in await queue.join("late")] == ["closed"]


async def test_an_empty_line_calls_at_once(queue: Queue):
    await queue.open()
    await queue.tick(1)
    assert [j.status for j in await queue.join("ann")] == ["ready"]


async def test_windows_passed_over_are_emptied(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    for _ in range(4):
        await queue.tick(31)
    assert [await queue.redis.get(f"queue:{{{EVENT}}}:1:0:alive:{slot}") for slot in range(3)] == [b"\x80"] * 3


async def test_a_longer_liveness_window_still_forgets_the_silent(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.crowd(3)
    await queue.configure(liveness_window_s=60)
    for _ in range(5):
        await queue.tick(61)
    assert [await queue.redis.get(f"queue:{{{EVENT}}}:1:0:alive:{slot}") for slot in range(3)] == [b"\x80"] * 3
