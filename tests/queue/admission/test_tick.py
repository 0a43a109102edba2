"""The tick: it keeps to the rate, the order of the line and `max_active`, and passes over silent fans.

What is said of a line: its invariants, one broken for each fault that is made on purpose, and its gauges.
"""

import asyncio
import itertools
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from services.queue.admission import gatekeeper as gatekeeping
from services.queue.admission.publisher import refresh_gauges
from services.queue.line.invariants import allowed, allowed_since
from services.queue.line.redis_line import LineNotReady, Stock
from shared.concurrency.background import Quiet
from shared.contracts.frames import FRAME_REPEAT_S, LoadFrame, SectionCounts, StockFrame
from shared.contracts.queue import EventHeartbeats, HeartbeatReport
from shared.process.preconditions import refresh_engine_gauges
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until

LATE_TICK_MS = 400  # tokens of a later tick are lost


async def calls(queue: Queue) -> list[tuple[int, int]]:
    """Number and time (ms, from the deadline) of every call so far."""
    rows = await queue.sql("SELECT join_seq, deadline_ms - 120000 FROM queue.admission ORDER BY 2, 1")
    return [tuple(row) for row in rows]


async def test_half_a_call_per_second_is_one_every_two_seconds(queue: Queue):
    await queue.open(fans=30, rate_per_s=0.5, burst=1)
    called = []
    for _ in range(100):
        await queue.tick(0.2)
        called.append(len(await queue.called()))
    assert called[-1] in (9, 10)
    gaps = [i for i in range(1, 100) if called[i] > called[i - 1]]
    assert all(later - earlier in (9, 10, 11) for earlier, later in itertools.pairwise(gaps))


@pytest.mark.parametrize("burst", [1, 300])
async def test_a_rate_of_a_thousand_calls_per_second_is_never_exceeded(queue: Queue, burst: int):
    await queue.open(rate_per_s=1000, burst=burst, max_active=100_000)
    started = int((await queue.room_hash())["bucket_ms"])
    for batch in range(2):
        await queue.join_fans(1000, name=f"batch-{batch}")
    rng, ticked_ms = random.Random(7), [started]
    while len(made := await calls(queue)) < 1500:
        await queue.tick(rng.choice([0.01, 0.1, 0.2, 0.3]))
        ticked_ms.append(int((await queue.room_hash())["last_ms"]))
    for seq, at_ms in made:
        assert seq <= at_ms - started + 1, "more calls than the rate allows since the room opened"
    span_ms = sum(min(later - earlier, LATE_TICK_MS) for earlier, later in itertools.pairwise(ticked_ms))
    assert len(made) >= span_ms * 0.95, "a tick that is late by less makes up for lost time"


async def test_a_pause_saves_no_tokens(queue: Queue):
    await queue.open(fans=100, rate_per_s=10, burst=50)
    await queue.transition("pause")
    before = len(await queue.called())
    await queue.tick(60)
    assert len(await queue.called()) == before
    await queue.transition("resume")
    await queue.tick(0.2)
    assert len(await queue.called()) - before <= 3


async def test_a_new_rate_does_not_apply_to_the_past(queue: Queue):
    await queue.open_and_call(fans=500, rate_per_s=0, burst=500)
    queue.advance_clock(10)
    await queue.configure(rate_per_s=100.0)
    await queue.tick(1.0)
    assert len(await queue.called()) in range(80, 120)


async def test_two_concurrent_gatekeepers_keep_the_rate_and_the_order_and_call_nobody_twice(queue: Queue, new_queue):
    """Without the bucket's time each refills the bucket; without head and `taken` bits each calls from the start."""
    await queue.open(rate_per_s=100, burst=20)
    started = int((await queue.room_hash())["bucket_ms"])
    await queue.join_fans(600)
    other = new_queue()
    for _ in range(12):
        queue.advance_clock(0.2)
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
        await asyncio.gather(*(one.state.gatekeeper.tick(EVENT) for one in (queue, other, queue, other)))
    called, fields = [seq for seq, _ in await calls(queue)], await queue.room_hash()
    span_s = (int(fields["last_ms"]) - started) / 1000
    assert int(fields["calls"]) <= 20 + 100 * span_s
    assert int(fields["calls"]) == len(called) >= 200, "each call is of another place"
    assert called == list(range(1, len(called) + 1))


async def test_the_clock_never_goes_back(queue: Queue):
    await queue.open(fans=500, rate_per_s=10, burst=1000)
    for _ in range(15):
        await queue.tick(0.4)
        await queue.tick(-0.4)
    assert len(await queue.called()) <= 40


async def test_calls_and_sessions_keep_to_max_active(queue: Queue):
    await queue.open_and_call(fans=50, max_active=7)
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    for _ in range(5):
        await queue.tick()
    assert len(await queue.sorted_set("called")) + len(await queue.sorted_set("active")) == 7


async def test_lowering_max_active_below_the_present_calls_calls_nobody(queue: Queue):
    await queue.open_and_call(fans=20, max_active=5)
    await queue.configure(max_active=2)
    await queue.tick()
    assert await queue.called() == [1, 2, 3, 4, 5]


async def test_silent_places_are_passed_over_and_called_after_a_heartbeat(queue: Queue):
    await queue.open(fans=40, rate_per_s=5, burst=5)
    await queue.end_assumed_liveness()
    first = set(await queue.called())
    await queue.tick(0.01)
    live = list(range(20, 30))
    await queue.heartbeat(*live)
    await queue.tick(2)
    await queue.tick(2)
    assert set(await queue.called()) - first <= set(live) | {1}
    await queue.heartbeat(8, *live)
    await queue.tick(2)
    await queue.tick(2)
    assert 8 in await queue.called()


async def test_silent_places_are_called_while_heartbeats_may_be_lost(queue: Queue):
    await queue.open(fans=10, rate_per_s=0)
    await queue.end_assumed_liveness()
    queue.state.gatekeeper._heartbeat_gaps = {EVENT}
    await queue.configure(rate_per_s=50.0)
    queue.state.gatekeeper._heartbeat_gaps = set()
    await queue.tick()
    await queue.tick()
    assert await queue.called() == list(range(1, 11))


async def test_a_silent_reporter_means_a_heartbeat_gap_in_every_room_until_it_is_forgotten(queue: Queue):
    await queue.open()
    heartbeats, rooms = queue.state.heartbeats, list(queue.state.rooms.known.values())
    assert await heartbeats.has_gap(rooms) == {EVENT}, "no gateway reports"
    await heartbeats.report(HeartbeatReport(reporter="gateway-1", events=[]))
    await heartbeats.report(HeartbeatReport(reporter="gateway-2", events=[]))
    assert await heartbeats.has_gap(rooms) == set()
    queue.advance_clock(20)
    await heartbeats.report(HeartbeatReport(reporter="gateway-1", events=[]))
    queue.advance_clock(5)
    assert await heartbeats.has_gap(rooms) == {EVENT}, "gateway-2 is overdue by half a window"
    await heartbeats.forget_dead(rooms)
    assert await heartbeats.has_gap(rooms) == set()
    await heartbeats.report(HeartbeatReport(reporter="gateway-3", events=[]))
    await heartbeats.report(HeartbeatReport(reporter="gateway-3", final=True, events=[]))
    queue.advance_clock(15)
    assert await heartbeats.has_gap(rooms) == set(), "a final report leaves no gap"


async def test_an_unclaimed_call_frees_its_slot_and_the_second_miss_ends_the_place(queue: Queue):
    await queue.open_and_call("sleepy", "next", max_active=1, claim_window_s=10)
    assert await queue.called() == [1]
    await queue.tick(10.1)
    assert await queue.called() == [2], "the slot is free at once"
    await queue.claim((2, "next"))
    await queue.leave((2, "next"))
    await queue.heartbeat(1)
    await queue.tick()
    assert await queue.called() == [1], "called once more, as a returner"
    await queue.tick(10.1)
    await queue.heartbeat(1)
    await queue.tick(1)
    assert await queue.called() == []
    [place] = await queue.state.claims.status(queue.places((1, "sleepy")))
    assert (place.status, place.why) == ("expired", "unclaimed")
    rows = await queue.sql("SELECT call, state FROM queue.admission WHERE join_seq = 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [(1, "missed"), (2, "missed")]
    assert [j.join_seq for j in await queue.join("sleepy")] == [3], "the fan may join again, at the tail"


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
async def test_returners_get_their_share_of_the_calls(queue: Queue, share: float):
    await queue.open(fans=200, rate_per_s=1, burst=3, returning_share=share)
    await queue.end_assumed_liveness()
    await queue.write_room_hash({"head_seq:0": 100})
    before = set(await queue.called())
    for _ in range(40):
        await queue.heartbeat(*range(1, 201))
        await queue.tick(1.0)
    called = set(await queue.called()) - before
    returners = sum(seq <= 100 for seq in called)
    assert len(called) in range(37, 44)
    assert abs(returners - share * len(called)) <= 1.5


async def test_returners_get_the_calls_that_the_main_line_leaves(queue: Queue):
    await queue.open(fans=5, returning_share=0.0)
    await queue.end_assumed_liveness()
    await queue.write_room_hash({"head_seq:0": 5})
    await queue.heartbeat(2, 4)
    await queue.tick()
    assert {2, 4} <= set(await queue.called())


async def commit_place(queue: Queue, join_seq: int) -> None:
    """A place far behind the head."""
    await queue.insert_place(join_seq, "far")
    await queue.state.line.commit_join(await queue.state.rooms.get(EVENT), 0, "", [join_seq])


async def test_one_tick_scans_a_limited_part_and_the_next_continues_there(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.end_assumed_liveness()
    far = 600_000
    await commit_place(queue, far)
    await queue.configure(rate_per_s=50.0)
    heads = [(await queue.tick()).lanes[0].head_seq for _ in range(4)]
    assert heads[0] < far
    assert all(later - earlier <= 8 * 32768 for earlier, later in itertools.pairwise(heads))
    assert heads[-1] == far
    assert await queue.called() == [far]


async def test_one_tick_searches_a_limited_part_for_returners(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.end_assumed_liveness()
    far = 1_000_000
    await commit_place(queue, far)
    await queue.write_room_hash({"head_seq:0": far})
    await queue.configure(rate_per_s=50.0)
    ticks = 0
    while not await queue.called():
        await queue.tick()
        ticks += 1
    assert ticks > 5, "at most 16 KiB a tick: their share, and what the main line leaves"


async def test_no_more_fans_are_called_than_tickets_are_left(queue: Queue):
    await queue.open(fans=20, rate_per_s=0)
    await queue.write_room_hash({"rate_per_s": 1000})
    for _ in range(3):
        queue.advance_clock(0.2)
        await queue.tick_unsaved(stock=Stock(available=3, holders_holding=0, level="plenty"))
    assert len(await queue.called()) == 3
    queue.advance_clock(0.2)
    ticked = await queue.tick_unsaved(stock=Stock(available=0, holders_holding=1, level="last_chance"))
    assert ticked.state["shown"] == "last_chance"
    queue.advance_clock(0.2)
    ticked = await queue.tick_unsaved(stock=Stock())
    assert (ticked.state["shown"], ticked.state["called"]) == ("last_chance", 3)
    queue.advance_clock(0.2)
    ticked = await queue.tick_unsaved(stock=Stock(available=9, holders_holding=0, level="plenty"))
    assert (ticked.state["shown"], ticked.state["called"]) == ("open", 9)


async def test_the_schedule_changes_the_state_of_the_room_by_the_clock_of_redis(queue: Queue):
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


async def test_a_fan_who_joins_an_empty_line_is_called_at_once(queue: Queue):
    await queue.open()
    await queue.tick(1)
    assert [j.status for j in await queue.join("ann")] == ["ready"]


@pytest.mark.parametrize("window_s", [30, 60])
async def test_past_liveness_windows_are_emptied_also_after_the_window_became_longer(queue: Queue, window_s: int):
    await queue.open(fans=3, rate_per_s=0)
    await queue.configure(liveness_window_s=window_s)
    for _ in range(5):
        await queue.tick(window_s + 1)
    assert [await queue.redis.get(f"queue:{{{EVENT}}}:1:0:alive:{slot}") for slot in range(3)] == [b"\x80"] * 3


# -- quiet rooms -------------------------------------------------------------------------------------------------------


async def version(queue: Queue) -> int:
    return int((await queue.room_hash())["version"])


async def run_once(queue: Queue) -> Quiet | None:
    """One run of the gatekeeper's loop."""
    gatekeeper = queue.state.gatekeeper
    found = await gatekeeper.tick_all()
    await wait_until(lambda: not gatekeeper._ticks)
    return found


async def report(queue: Queue, *join_seqs: int) -> None:
    events = [EventHeartbeats(event_id=EVENT, epoch=1, lanes={0: list(join_seqs)})] if join_seqs else []
    await queue.state.heartbeats.report(HeartbeatReport(reporter="gateway-1", final=False, events=events))


@pytest.fixture
async def quiet(queue: Queue) -> Queue:
    """A room without fans; every reporter reports."""
    await queue.open()
    await report(queue)
    await run_once(queue)
    return queue


async def test_the_loop_is_quiet_until_a_frame_of_a_quiet_room_must_be_repeated(quiet: Queue) -> None:
    found, frames = await run_once(quiet), quiet.state.gatekeeper.frames
    assert found is not None
    assert FRAME_REPEAT_S - 2 < found.for_s <= FRAME_REPEAT_S - 1
    shown_s, frame = frames._published[EVENT]
    assert not frames.is_due(EVENT), "at once"
    frames._published[EVENT] = shown_s - found.for_s + 1, frame
    await run_once(quiet)
    assert frames._published[EVENT][0] >= shown_s, "a pause that ended up to a second early repeats it"


async def test_a_fan_who_joins_a_quiet_room_is_called_and_wakes_the_loop(quiet: Queue, woken: list[str]) -> None:
    await run_once(quiet)
    woken.clear()
    joined = (await quiet.join("ann"))[0]
    assert joined.status == "ready", "called by the tick of the join"
    assert "queue" in woken
    assert await run_once(quiet) is None


async def test_a_tick_that_finds_something_in_a_quiet_room_wakes_the_loop(quiet: Queue, woken: list[str]) -> None:
    await quiet.join("ann")
    quiet.state.gatekeeper._quiet.add(EVENT)
    woken.clear()
    await run_once(quiet)
    assert woken == ["queue"]


@pytest.mark.parametrize("room", [{"max_active": 1}, {"rate_per_s": 0.001, "burst": 1}])
async def test_a_room_in_which_a_fan_waits_is_not_quiet(queue: Queue, room: dict[str, Any]) -> None:
    await queue.open("ann", "bob", **room)
    await report(queue, 1, 2)
    await run_once(queue)
    assert await run_once(queue) is None


@pytest.mark.parametrize(("seconds", "quiet"), [(5, False), (60, True), (-60, True)])
async def test_a_room_is_not_quiet_before_one_of_its_times(queue: Queue, seconds: int, quiet: bool) -> None:
    starts_at = to_datetime(now_ms()) + timedelta(seconds=seconds)
    await queue.open(queue_opens_at=starts_at - timedelta(hours=1), sale_starts_at=starts_at)
    await report(queue)
    await run_once(queue)
    assert (await run_once(queue) is not None) is quiet


def test_a_coming_time_is_noticed_between_two_ticks_of_a_quiet_room() -> None:
    assert gatekeeping.SOON_MS > 1000 * FRAME_REPEAT_S


async def test_a_room_whose_heartbeats_may_be_lost_is_not_quiet(quiet: Queue) -> None:
    await quiet.redis.delete("queue:reporters")
    quiet.state.gatekeeper._refresh_at_s = 0.0
    assert await run_once(quiet) is None


async def test_only_heartbeats_of_fans_wake_the_loops(quiet: Queue, woken: list[str]) -> None:
    await report(quiet)
    assert not woken
    await report(quiet, 1)
    assert woken == ["queue"]


async def test_stock_that_changes_wakes_the_loops_and_a_repeated_frame_does_not(quiet: Queue, woken: list[str]) -> None:
    cache = quiet.state.gatekeeper.stock_cache

    def show(version: int, available: int) -> None:
        sections = [SectionCounts(section_id="GA", available=available, held=0, sold=10 - available, at_ms=now_ms())]
        frame = StockFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), sections=sections)
        cache.on_frame(frame.model_dump_json().encode())

    show(1, 10)
    woken.clear()
    show(2, 10)
    assert not woken
    show(3, 9)
    assert woken == ["queue"]


async def test_places_that_redis_lacks_and_joins_being_inserted_are_not_quiet(
    quiet: Queue, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = quiet.state.joins
    assert (await joins.renew(), await joins.pending_commits.commit_all()) == (Quiet(), Quiet())
    async with quiet.blocked_join("ann") as joining:
        assert "queue" in woken, "before anything is written"
        assert await joins.renew() is None
    await joining
    woken.clear()
    joins.pending_commits.add(await quiet.state.rooms.get(EVENT), 0, {1})
    assert woken == ["queue"]
    monkeypatch.setattr(joins.pending_commits, "commit", AsyncMock(side_effect=LineNotReady))
    assert await joins.pending_commits.commit_all() is None


async def test_the_control_loop_is_quiet_while_there_is_no_load(quiet: Queue, woken: list[str]) -> None:
    control_loop = quiet.state.control_loop
    assert await control_loop.run_once() == Quiet()
    load = LoadFrame(
        service="orders", process="one", at_ms=now_ms(), work=1.0, average_work=1.0, done_per_s=0.0, refused=0,
        p95_ms=1.0,
    )  # fmt: skip
    control_loop.ceilings.load_cache.on_frame(load.model_dump_json().encode())
    assert woken == ["queue"]
    assert await control_loop.run_once() is None


FAULTS = {
    "3 no number": "UPDATE queue.place SET join_seq = 99 WHERE join_seq = 3",
    "4 every call": "INSERT INTO queue.admission VALUES ('show', 1, 0, 77, 1, 'called', 1, NULL, NULL)",
    "5 nobody is called": "UPDATE queue.lane SET head_seq = 0",
    "4 slots": "UPDATE queue.admission SET state = 'missed' WHERE join_seq = 1",
}


async def broken(queue: Queue) -> list[str]:
    return [violation.invariant for violation in await queue.violations()]


@pytest.mark.parametrize("invariant", FAULTS)
async def test_a_broken_invariant_is_reported(queue: Queue, invariant: str) -> None:
    await queue.open_and_call(fans=3, max_active=2)
    await queue.claim((1, "fan-1"))
    assert await broken(queue) == []
    await queue.sql(FAULTS[invariant])
    assert any(name.startswith(invariant) for name in await broken(queue))


async def test_a_slot_known_to_redis_alone_is_reported(queue: Queue) -> None:
    await queue.open_and_call(fans=2)
    await queue.redis.zadd(f"queue:{{{EVENT}}}:1:active", {"0:2000": 1})
    assert any(name.startswith("4 slots") for name in await broken(queue))


async def test_a_slot_that_is_just_being_freed_is_not_reported(queue: Queue) -> None:
    """A purchase ends its place in the database, and then frees its slot."""
    await queue.open_and_call(fans=2, max_active=2)
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'completed' WHERE join_seq = 1")
    async with asyncio.TaskGroup() as group:
        found = group.create_task(broken(queue))
        await asyncio.sleep(0.25)
        await queue.redis.zrem(f"queue:{{{EVENT}}}:1:called", "0:1")
    assert found.result() == []


async def test_an_empty_redis_is_reported(queue: Queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    assert await broken(queue) == ["3 Redis holds the line"]


# -- the allowed number of calls ---------------------------------------------------------------------------------------


START = datetime(2027, 1, 1, tzinfo=UTC)


def entry(after_s: float, action: str = "change", **facts: Any) -> tuple[datetime, str, dict[str, Any]]:
    return START + timedelta(seconds=after_s), action, {"state": "open", "rate_per_s": 10, "burst": 50, **facts}


def test_the_bound_is_the_rate_over_time_plus_the_burst_and_manual_admissions() -> None:
    until = START + timedelta(seconds=100)
    assert allowed([entry(0)], until) == 10 * 101 + 50
    assert allowed([entry(0), entry(40, state="paused"), entry(90, state="draining")], until) == 10 * 41 + 10 * 11 + 50
    assert allowed([entry(0, state="draft"), entry(60, "admit", state="paused", admit=7)], until) == 7 + 50
    assert allowed([], until) == 0


async def beyond_allowed(queue: Queue) -> list[str]:
    return [violation.detail for violation in await queue.violations() if "allow" in violation.invariant]


async def test_calls_beyond_the_allowed_number_are_reported(queue: Queue) -> None:
    await queue.open(fans=40, rate_per_s=1, burst=5)
    await queue.tick(4)
    assert await beyond_allowed(queue) == []
    await queue.write_room_hash({"tokens": 40, "burst": 99, "token_cap": 99})
    await queue.tick(0.2)
    assert len(await queue.called()) == 40
    [detail] = await beyond_allowed(queue)
    assert "40 calls" in detail


def test_a_lower_rate_cuts_the_saved_calls_in_proportion() -> None:
    until = START + timedelta(seconds=100)
    fast = entry(0, rate_per_s=200, burst=200)
    slow = allowed_since([fast, entry(60, rate_per_s=1, burst=200)], until)
    assert slow[1] == 1 + 41, "200 saved at 200 a second took a second: at 1 a second that is one call"
    stopped = allowed_since([fast, entry(60, rate_per_s=0, burst=200), entry(80, rate_per_s=5, burst=200)], until)
    assert stopped[1:] == [21 * 5, 21 * 5]
    faster = allowed_since([entry(0, rate_per_s=1, burst=30), entry(60, rate_per_s=10, burst=20)], until)
    assert faster[1] == 20 + 41 * 10, "a new burst bounds what was saved"


@pytest.mark.parametrize(("rate_per_s", "most"), [(0.0, 0), (1.0, 3)])
async def test_a_lower_rate_cuts_saved_tokens_and_the_invariant_checks_it(
    queue: Queue, rate_per_s: float, most: int
) -> None:
    await queue.open(rate_per_s=200, burst=200, max_active=500)
    for _ in range(8):
        await queue.tick(0.4)
    assert float((await queue.room_hash())["tokens"]) == 200, "no fan waited to be called"
    await queue.configure(rate_per_s=rate_per_s)
    await queue.tick(1.5)
    await queue.join_fans(40)
    await queue.tick(0.2)
    assert len(await queue.called()) <= most
    backdate = "UPDATE queue.audit_log SET at = at - interval '2 seconds'"  # the test moves Redis' clock only
    await queue.sql(backdate)
    assert await beyond_allowed(queue) == []


async def test_a_token_returned_at_rate_0_calls_no_fan(queue: Queue) -> None:
    await queue.open(fans=5, rate_per_s=0)
    await queue.write_room_hash({"tokens": 3})  # as a call that is undone returns them
    await queue.tick()
    assert await queue.called() == []


# -- gauges ------------------------------------------------------------------------------------------------------------


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"event_id": EVENT, **labels}) or 0.0


async def refresh(queue: Queue) -> None:
    await refresh_gauges(queue.state.gatekeeper.frames, queue.db, queue.redis)


async def test_each_call_is_counted_with_the_time_its_fan_waited(queue: Queue) -> None:
    await queue.open(fans=20, rate_per_s=0)
    await queue.sql("UPDATE queue.place SET joined_at = joined_at - interval '40 seconds'")
    called, waited = value("queue_called_total"), value("queue_wait_seconds_sum")
    await queue.configure(rate_per_s=1000)
    await queue.tick()
    calls = len(await queue.called())
    assert value("queue_called_total") - called == calls > 0
    assert calls * 40 <= value("queue_wait_seconds_sum") - waited < calls * 50


async def test_the_room_is_open_only_while_it_calls(queue: Queue) -> None:
    await queue.open(fans=1)
    await queue.tick()
    assert value("queue_room_open") == 1
    await queue.transition("pause")
    assert value("queue_room_open") == 0


async def test_the_error_of_a_position_is_those_before_it_who_left(queue: Queue) -> None:
    await queue.open(fans=50, rate_per_s=0)
    await queue.tick()
    await refresh(queue)
    assert value("queue_position_error") == 0
    await queue.leave(*((seq, f"fan-{seq}") for seq in range(1, 51)))
    await refresh(queue)
    assert 1 <= value("queue_position_error") <= 50, "all before the sample have left"


async def test_the_memory_of_a_line_is_that_of_its_keys(queue: Queue) -> None:
    await queue.open(fans=1)
    await queue.tick()
    await refresh(queue)
    small = value("queue_line_memory_bytes")
    await queue.redis.setbit(f"queue:{{{EVENT}}}:1:0:done", 8 * 100_000, 1)
    await refresh(queue)
    assert value("queue_line_memory_bytes") - small > 90_000 > small > 0


async def test_the_engines_show_their_memory_and_who_waits_for_a_lock(queue: Queue) -> None:
    await queue.open("ann")
    await refresh_engine_gauges("queue", queue.db, queue.redis)
    where = queue.redis.connection_pool.connection_kwargs
    node = {"node": f"{where['host']}:{where['port']}"}
    assert (REGISTRY.get_sample_value("onsale_redis_memory_bytes", node) or 0) > 100_000
    assert REGISTRY.get_sample_value("onsale_redis_memory_limit_bytes", node) is not None
    locks = text("SELECT pg_advisory_lock(1), set_config('application_name', 'onsale-queue', false)")
    async with queue.db.connect() as holds, queue.db.connect() as waits:
        await waits.execute(text("SELECT set_config('application_name', 'onsale-queue', false)"))
        await holds.execute(locks)
        waiting = asyncio.create_task(waits.execute(locks))
        await wait_until(partial(shows_waiting, queue, 1))
        await holds.execute(text("SELECT pg_advisory_unlock(1)"))
        await waiting
        await wait_until(partial(shows_waiting, queue, 0))
        await waits.execute(text("SELECT pg_advisory_unlock(1)"))


async def shows_waiting(queue: Queue, expected: int) -> bool:
    await refresh_engine_gauges("queue", queue.db, queue.redis)
    return REGISTRY.get_sample_value("onsale_database_lock_waiting", {"service": "queue"}) == expected
