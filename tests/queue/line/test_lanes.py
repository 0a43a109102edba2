"""Lanes on a real line: shares by weight at any rate, order within each, starts of their own, made and removed live."""

import asyncio
from datetime import timedelta

import pytest

from services.queue.line.repository import LaneTotals
from services.queue.problems import LaneInUse
from services.queue.rooms.invariants import check_invariants, unfair_lanes
from services.queue.rooms.model import read
from shared.contracts.queue import Joined
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import EVENT, Queue, event_file

GENERAL = {"lane": 0, "name": "General", "weight": 1}
PRESALE = {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}


async def open_two(queue: Queue, *, general: int = 0, presale: int = 0, **room) -> None:
    await queue.open(lanes=[GENERAL, PRESALE], **room)
    for lane, count in ((0, general), (1, presale)):
        for start in range(0, count, 1000):
            await queue.join(*(f"{lane}-{n}" for n in range(start, min(count, start + 1000))), lane=lane)


async def calls(queue: Queue) -> list[tuple[int, int]]:
    """Lane and number of each call, in the order they were made."""
    rows = await queue.sql("SELECT lane, join_seq FROM queue.admission ORDER BY deadline_ms, lane, join_seq")
    return [tuple(row) for row in rows]


async def of_each(queue: Queue) -> tuple[int, int]:
    lanes = [lane for lane, _ in await calls(queue)]
    return lanes.count(0), lanes.count(1)


async def turn_until(queue: Queue, count: int, *, after_s: float = 0.4) -> tuple[int, int]:
    """Ticks until so many were called in all; how many of each lane. It ends, because every tick is later."""
    while sum(await of_each(queue)) < count:
        await queue.tick(after_s)
    return await of_each(queue)


async def broken(queue: Queue) -> list[str]:
    room = await queue.state.rooms.read(EVENT)
    return [
        line.detail
        for line in await check_invariants(
            queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms
        )
        if not line.holds
    ]


@pytest.mark.parametrize(("rate_per_s", "after_s", "enough"), [(0.5, 0.4, 30), (1000, 0.2, 600)])
async def test_shares_are_the_weights_at_any_rate(queue: Queue, rate_per_s: float, after_s: float, enough: int):
    await open_two(queue, general=enough, presale=2 * enough, rate_per_s=0, burst=1)
    await queue.configure(rate_per_s=float(rate_per_s))
    general, presale = await turn_until(queue, enough, after_s=after_s)
    assert abs(presale - 3 * general) <= 4, (general, presale)
    for lane in (0, 1):
        mine = [seq for of, seq in await calls(queue) if of == lane]
        assert mine == list(range(1, len(mine) + 1)), "first come, first served in each"
    assert await broken(queue) == []


async def test_an_idle_lane_leaves_its_share_to_the_others_at_once(queue: Queue):
    await open_two(queue, general=50, presale=4, rate_per_s=0, max_active=20)
    await queue.configure(rate_per_s=1000.0)
    assert await turn_until(queue, 20) == (16, 4), "fifteen of twenty were the presale's"
    await queue.configure(max_active=30)
    assert await turn_until(queue, 30) == (26, 4)


async def test_silent_places_of_a_lane_take_nothing_from_the_others(queue: Queue):
    await open_two(queue, general=30, presale=30, rate_per_s=0)
    await queue.liveness_assumed_over()
    await queue.heartbeat(*range(1, 31), lane=0)
    await queue.configure(rate_per_s=1000.0, max_active=10)
    assert await turn_until(queue, 10) == (10, 0)


async def test_two_gatekeepers_at_once_keep_rate_order_and_share(queue: Queue, another):
    await open_two(queue, general=150, presale=450, rate_per_s=0, burst=20)
    await queue.configure(rate_per_s=100.0)
    started = int((await queue.room_hash())["bucket_ms"])
    other = another()
    for _ in range(12):
        queue.later(0.2)
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
        await asyncio.gather(*(one.state.gatekeeper.tick(EVENT) for one in (queue, other, queue, other)))
    general, presale = await of_each(queue)
    span_s = (int((await queue.room_hash())["bucket_ms"]) - started) / 1000
    assert 180 <= general + presale <= 40 + 100 * span_s
    assert abs(presale - 3 * general) <= 4
    for lane in (0, 1):
        mine = [seq for of, seq in await calls(queue) if of == lane]
        assert mine == list(range(1, len(mine) + 1))
    assert await broken(queue) == []


async def test_losing_redis_keeps_lanes_order_and_share(queue: Queue):
    await open_two(queue, general=40, presale=60, rate_per_s=10, burst=4)
    for _ in range(10):
        await queue.tick(0.4)
    before = sum(await of_each(queue))
    await queue.redis.flushall()
    general, presale = await turn_until(queue, before + 30)
    assert abs(presale - 3 * general) <= 6
    assert len(set(await calls(queue))) == general + presale, "nobody is called twice"
    lane_totals = [tuple(row) for row in await queue.sql("SELECT calls FROM queue.lane ORDER BY lane")]
    assert lane_totals == [(general,), (presale,)]
    assert await broken(queue) == []


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lane_waits_for_its_own_start(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "if now >= number('lane_opens_ms:' .. lane.name) then", "if true then")
    later = to_datetime(now_ms()) + timedelta(seconds=60)
    await queue.open(lanes=[{**GENERAL, "opens_at": later.isoformat()}, PRESALE], rate_per_s=10, burst=10)
    await queue.join("early", lane=0)
    await queue.join("fan-1", "fan-2", lane=1)
    assert (await turn_until(queue, 2) == (0, 2)) == guarded
    if guarded:
        assert [j.status for j in await queue.join("another", lane=0)] == ["prequeue"]
        await queue.tick(62)
        assert await turn_until(queue, 4) == (2, 2)


async def test_a_lane_has_a_length_of_its_own(queue: Queue):
    await queue.open(lanes=[GENERAL, {**PRESALE, "max_line": 2}], rate_per_s=0)
    assert results(await queue.crowd(3, lane=1, name="presale")) == ["joined", "joined", "line-full"]
    assert results(await queue.crowd(3)) == ["joined"] * 3


def results(joined: list[Joined]) -> list[str]:
    return [one.word for one in joined]


async def test_a_lane_made_while_the_room_is_open_is_called_at_once(queue: Queue, another):
    await queue.open(rate_per_s=10, burst=10)
    await queue.crowd(20)
    other = another()
    await other.state.rooms.read(EVENT)
    await queue.state.rooms.apply(event_file(rate_per_s=10, burst=10, lanes=[GENERAL, PRESALE]), actor="test")
    await queue.state.gatekeeper.apply_config(await queue.state.rooms.read(EVENT))
    await queue.crowd(20, lane=1, name="presale")
    other.time_ms = queue.time_ms
    frame = await other.tick(0.4)
    assert list(frame.lanes) == [0], "it has not heard of the lane"
    frame = await other.tick(0.6)
    assert list(frame.lanes) == [0, 1], "the tick told it"
    assert (await turn_until(other, 30))[1] >= 5
    assert await broken(other) == []


async def test_a_lane_with_places_stays_and_an_empty_one_goes(queue: Queue):
    await open_two(queue, rate_per_s=0)
    await queue.join("fan-1", lane=1)
    with pytest.raises(LaneInUse) as refused:
        await queue.state.rooms.apply(event_file(rate_per_s=0), actor="test")
    assert refused.value.members == {"lane": 1}
    assert (await queue.state.rooms.read(EVENT)).lanes == (0, 1)
    await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    await queue.state.rooms.apply(event_file(rate_per_s=0), actor="test")
    assert (await queue.state.rooms.read(EVENT)).lanes == (0,)
    assert results(await queue.join("fan-1", lane=1)) == ["unknown-lane"]


@pytest.mark.parametrize("engine_away", [False, True])
async def test_nobody_is_committed_in_a_lane_that_was_taken_away_meanwhile(queue: Queue, another, engine_away: bool):
    await open_two(queue, rate_per_s=0)
    other = another()
    await other.state.rooms.read(EVENT)
    await queue.state.rooms.change(EVENT, {"lanes": (event_file().room.lanes[0],)}, actor="t", action="t", reason=None)
    if engine_away:
        other.state.line.unresponsive.add(EVENT)
    assert results(await other.join("fan-1", lane=1)) == ["unknown-lane"]
    assert await queue.sql("SELECT 1 FROM queue.place") == []


async def test_a_lane_is_not_removed_under_a_batch_that_is_being_written(queue: Queue):
    await open_two(queue, rate_per_s=0)
    async with queue.db.connect() as writing:
        await writing.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared(hashtextextended('queue {EVENT}', 0))")
        removing = asyncio.create_task(queue.state.rooms.apply(event_file(rate_per_s=0), actor="test"))
        done, _ = await asyncio.wait([removing], timeout=0.2)
        assert not done
        await writing.exec_driver_sql(
            f"INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('{EVENT}', 1, 1, 1, 'ann')"
        )
        await writing.commit()
    with pytest.raises(LaneInUse):
        await removing
    async with queue.db.connect() as connection:
        assert (await read(connection, EVENT)).lanes == (0, 1)


async def test_weights_change_live(queue: Queue):
    await open_two(queue, general=100, presale=100, rate_per_s=0, burst=4)
    lanes = event_file(lanes=[{**GENERAL, "weight": 4}, {**PRESALE, "weight": 1}]).room.lanes
    await queue.configure(lanes=lanes, rate_per_s=10.0)
    general, presale = await turn_until(queue, 60)
    assert abs(general - 4 * presale) <= 5


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_audit_sees_weights_that_are_not_kept(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", "if lane.owed > left[first].owed + 1e-9 then first = i end")
    await open_two(queue, general=60, presale=60, rate_per_s=5, burst=1)
    await turn_until(queue, 40)
    assert (await broken(queue) == []) == guarded
    assert unfair_lanes({0: LaneTotals(50, 40, 10.0, 1), 1: LaneTotals(0, 0, 30.0, 1)})
