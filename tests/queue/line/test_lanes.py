"""Lanes of a line: shares by weight at any rate, order within each, their own starts, adding and removing them live."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from services.queue.admission.gatekeeper import TICK
from services.queue.line.invariants import unfair_lanes
from services.queue.line.repository import LaneTotals
from services.queue.problems import LaneInUse
from services.queue.rooms.model import RequestedBy, read
from shared.contracts.queue import Joined
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import EVENT, TEST, Queue, event_file

GENERAL = {"lane": 0, "name": "General", "weight": 1}
PRESALE = {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}


async def open_two_lanes(queue: Queue, *, general: int = 0, presale: int = 0, **room) -> None:
    await queue.open(lanes=[GENERAL, PRESALE], **room)
    for lane, count in ((0, general), (1, presale)):
        for start in range(0, count, 1000):
            await queue.join(*(f"{lane}-{n}" for n in range(start, min(count, start + 1000))), lane=lane)


async def calls(queue: Queue) -> list[tuple[int, int]]:
    """Lane and number of each call, in the order they were made."""
    rows = await queue.sql("SELECT lane, join_seq FROM queue.admission ORDER BY deadline_ms, lane, join_seq")
    return [tuple(row) for row in rows]


async def calls_per_lane(queue: Queue) -> tuple[int, int]:
    lanes = [lane for lane, _ in await calls(queue)]
    return lanes.count(0), lanes.count(1)


async def tick_until(queue: Queue, count: int, *, after_s: float = 0.4) -> tuple[int, int]:
    """Ticks until so many calls were made in all; the calls of each lane."""
    while sum(await calls_per_lane(queue)) < count:
        await queue.tick(after_s)
    return await calls_per_lane(queue)


def assert_order_in_each_lane(calls: list[tuple[int, int]]) -> None:
    for lane in (0, 1):
        join_seqs = [seq for called_lane, seq in calls if called_lane == lane]
        assert join_seqs == list(range(1, len(join_seqs) + 1)), "first come, first served in each lane"


@pytest.mark.parametrize(("rate_per_s", "after_s", "count"), [(0.5, 1.0, 30), (1000, 0.2, 600)])
async def test_lanes_share_calls_by_weight_at_any_rate(queue: Queue, rate_per_s: float, after_s: float, count: int):
    await open_two_lanes(queue, general=count, presale=2 * count, rate_per_s=0, burst=1)
    await queue.configure(rate_per_s=float(rate_per_s))
    general, presale = await tick_until(queue, count, after_s=after_s)
    assert abs(presale - 3 * general) <= 4, (general, presale)
    assert_order_in_each_lane(await calls(queue))
    assert await queue.violations() == []


async def test_an_idle_lane_leaves_its_share_to_the_others_at_once(queue: Queue):
    await open_two_lanes(queue, general=50, presale=4, rate_per_s=0, max_active=20)
    await queue.configure(rate_per_s=1000.0)
    assert await tick_until(queue, 20) == (16, 4), "the share of the presale was fifteen"
    await queue.configure(max_active=30)
    assert await tick_until(queue, 30) == (26, 4)


async def test_silent_places_of_a_lane_take_no_calls_from_the_others(queue: Queue):
    await open_two_lanes(queue, general=30, presale=30, rate_per_s=0)
    await queue.end_assumed_liveness()
    await queue.heartbeat(*range(1, 31), lane=0)
    await queue.configure(rate_per_s=1000.0, max_active=10)
    assert await tick_until(queue, 10) == (10, 0)


async def test_two_concurrent_gatekeepers_keep_rate_order_and_shares(queue: Queue, new_queue):
    await open_two_lanes(queue, general=150, presale=450, rate_per_s=0, burst=20)
    await queue.configure(rate_per_s=100.0)
    started = int((await queue.room_hash())["bucket_ms"])
    other = new_queue()
    for _ in range(12):
        queue.advance_clock(0.2)
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
        await asyncio.gather(*(one.state.gatekeeper.tick(EVENT) for one in (queue, other, queue, other)))
    general, presale = await calls_per_lane(queue)
    span_s = (int((await queue.room_hash())["bucket_ms"]) - started) / 1000
    assert 180 <= general + presale <= 40 + 100 * span_s
    assert abs(presale - 3 * general) <= 4
    assert_order_in_each_lane(await calls(queue))
    assert await queue.violations() == []


async def test_a_loss_of_redis_keeps_lanes_order_and_shares(queue: Queue):
    await open_two_lanes(queue, general=40, presale=60, rate_per_s=10, burst=4)
    for _ in range(10):
        await queue.tick(0.4)
    before = sum(await calls_per_lane(queue))
    await queue.redis.flushall()
    general, presale = await tick_until(queue, before + 30)
    assert abs(presale - 3 * general) <= 6
    assert len(set(await calls(queue))) == general + presale, "nobody is called twice"
    lane_totals = [tuple(row) for row in await queue.sql("SELECT calls FROM queue.lane ORDER BY lane")]
    assert lane_totals == [(general,), (presale,)]
    assert await queue.violations() == []


async def test_a_lane_waits_for_its_own_start(queue: Queue):
    later = to_datetime(now_ms()) + timedelta(seconds=60)
    await queue.open(lanes=[{**GENERAL, "opens_at": later.isoformat()}, PRESALE], rate_per_s=10, burst=10)
    await queue.join("early", lane=0)
    await queue.join("fan-1", "fan-2", lane=1)
    assert await tick_until(queue, 2) == (0, 2)
    assert [j.status for j in await queue.join("another", lane=0)] == ["prequeue"]
    await queue.tick(62)
    assert await tick_until(queue, 4) == (2, 2)


async def test_a_full_lane_refuses_joins_and_the_others_accept_them(queue: Queue):
    await queue.open(lanes=[GENERAL, {**PRESALE, "max_line": 2}], rate_per_s=0)
    assert outcomes(await queue.join_fans(3, lane=1, name="presale")) == ["joined", "joined", "line-full"]
    assert outcomes(await queue.join_fans(3)) == ["joined"] * 3


def outcomes(joined: list[Joined]) -> list[str]:
    return [one.word for one in joined]


async def test_a_lane_added_to_an_open_room_is_called_at_once(queue: Queue, new_queue):
    await queue.open(fans=20, rate_per_s=10, burst=10)
    other = new_queue()
    await other.state.rooms.read(EVENT)
    await queue.state.rooms.apply(event_file(rate_per_s=10, burst=10, lanes=[GENERAL, PRESALE]), RequestedBy("test"))
    await queue.state.gatekeeper.apply_config(await queue.state.rooms.read(EVENT))
    await queue.join_fans(20, lane=1, name="presale")
    other.time_ms = queue.time_ms
    frame = await other.tick(0.4)
    assert list(frame.lanes) == [0], "it does not know the lane yet"
    frame = await other.tick(0.6)
    assert list(frame.lanes) == [0, 1], "it read the room after the tick"
    assert (await tick_until(other, 30))[1] >= 5
    assert await other.violations() == []


async def test_a_lane_with_places_cannot_be_removed_but_an_empty_one_can(queue: Queue):
    await open_two_lanes(queue, rate_per_s=0)
    await queue.join("fan-1", lane=1)
    with pytest.raises(LaneInUse) as refused:
        await queue.state.rooms.apply(event_file(rate_per_s=0), RequestedBy("test"))
    assert refused.value.members == {"lane": 1}
    assert (await queue.state.rooms.read(EVENT)).lanes == (0, 1)
    await queue.state.rooms.reset(EVENT, TEST)
    await queue.state.rooms.apply(event_file(rate_per_s=0), RequestedBy("test"))
    assert (await queue.state.rooms.read(EVENT)).lanes == (0,)
    assert outcomes(await queue.join("fan-1", lane=1)) == ["unknown-lane"]


@pytest.mark.parametrize("redis_away", [False, True])
async def test_a_join_of_a_lane_removed_meanwhile_is_refused(queue: Queue, new_queue, redis_away: bool):
    await open_two_lanes(queue, rate_per_s=0)
    other = new_queue()
    await other.state.rooms.read(EVENT)
    await queue.state.rooms.change(EVENT, {"lanes": (event_file().room.lanes[0],)}, TEST)
    if redis_away:
        other.state.line.unresponsive.add(EVENT)
    assert outcomes(await other.join("fan-1", lane=1)) == ["unknown-lane"]
    assert await queue.sql("SELECT 1 FROM queue.place") == []


async def test_removing_a_lane_waits_for_a_batch_that_is_being_inserted(queue: Queue):
    await open_two_lanes(queue, rate_per_s=0)
    async with queue.db.connect() as insert:
        await insert.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared(hashtextextended('queue {EVENT}', 0))")
        removing = asyncio.create_task(queue.state.rooms.apply(event_file(rate_per_s=0), RequestedBy("test")))
        done, _ = await asyncio.wait([removing], timeout=0.2)
        assert not done
        await insert.exec_driver_sql(
            f"INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder) VALUES ('{EVENT}', 1, 1, 1, 'ann')"
        )
        await insert.commit()
    with pytest.raises(LaneInUse):
        await removing
    async with queue.db.connect() as connection:
        assert (await read(connection, EVENT)).lanes == (0, 1)


async def test_new_weights_apply_to_the_next_calls(queue: Queue):
    await open_two_lanes(queue, general=100, presale=100, rate_per_s=0, burst=4)
    lanes = event_file(lanes=[{**GENERAL, "weight": 4}, {**PRESALE, "weight": 1}]).room.lanes
    await queue.configure(lanes=lanes, rate_per_s=10.0)
    general, presale = await tick_until(queue, 60)
    assert abs(general - 4 * presale) <= 5


async def test_the_fairness_invariant_finds_shares_that_differ_from_the_weights(queue: Queue):
    await open_two_lanes(queue, general=60, presale=60, rate_per_s=5, burst=1)
    await tick_until(queue, 40)
    assert await queue.violations() == []
    assert unfair_lanes({0: LaneTotals(50, 40, 10.0, 1), 1: LaneTotals(0, 0, 30.0, 1)})


# -- properties over random weights, arrivals and rates ----------------------------------------------------------------


DRIVER = """
local scenario, answer = cjson.decode(ARGV[1]), {}
local lanes = {}
for i, weight in ipairs(scenario.weights) do lanes[i] = {weight = weight, owed = 0, waiting = 0} end
for t, tick in ipairs(scenario.ticks) do
  for i, arrivals in ipairs(tick.arrivals) do
    lanes[i].waiting = lanes[i].waiting + arrivals
    lanes[i].waits = lanes[i].waiting > 0
  end
  local calls, contended = share_calls(lanes, tick.n, function(lane, wanted)
    local n = math.min(wanted, lane.waiting)
    lane.waiting = lane.waiting - n
    return n
  end)
  answer[t] = {calls = calls, contended = contended, made = {}, owed = {}}
  for i, lane in ipairs(lanes) do answer[t].made[i], answer[t].owed[i] = lane.made, lane.owed end
end
return cjson.encode(answer)
"""
SHARE = TICK.source.split("local function save_shares")[0]


def run(redis: Redis, weights: list[int], ticks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The result of each tick."""
    return json.loads(redis.eval(SHARE + DRIVER, 0, json.dumps({"weights": weights, "ticks": ticks})))


@pytest.fixture
def sync_redis(redis_url: str):
    with Redis.from_url(redis_url) as redis:
        yield redis


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[list[int], list[dict[str, Any]]]:
    weights = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=5))
    calls = st.one_of(st.integers(0, 2), st.integers(0, 2000))
    arrivals = st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 3000)),
                        min_size=len(weights), max_size=len(weights))  # fmt: skip
    tick = st.fixed_dictionaries({"n": calls, "arrivals": arrivals})
    return weights, draw(st.lists(tick, min_size=1, max_size=40))


FEW_EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW_EXAMPLES
@given(scenario=scenarios())
def test_no_call_is_lost_or_invented_and_debts_stay_below_the_number_of_lanes(sync_redis: Redis, scenario) -> None:
    weights, ticks = scenario
    waiting = [0] * len(weights)
    for tick, result in zip(ticks, run(sync_redis, weights, ticks), strict=True):
        waiting = [n + arrivals for n, arrivals in zip(waiting, tick["arrivals"], strict=True)]
        assert sum(result["made"]) == result["calls"] == min(tick["n"], sum(waiting)), "an idle lane leaves its calls"
        assert all(0 <= made <= n for made, n in zip(result["made"], waiting, strict=True))
        assert all(abs(owed) < len(weights) for owed in result["owed"])
        waiting = [n - made for n, made in zip(waiting, result["made"], strict=True)]


@FEW_EXAMPLES
@given(weights=st.lists(st.integers(1, 100), min_size=2, max_size=6),
       calls=st.lists(st.one_of(st.integers(0, 1), st.integers(0, 900)), min_size=20, max_size=60))  # fmt: skip
def test_calls_follow_the_weights_after_every_tick_at_any_rate(sync_redis: Redis, weights, calls) -> None:
    ticks = [{"n": n, "arrivals": [10**6 if t == 0 else 0] * len(weights)} for t, n in enumerate(calls)]
    made, so_far = [0] * len(weights), 0
    for n, result in zip(calls, run(sync_redis, weights, ticks), strict=True):
        so_far += n
        made = [total + more for total, more in zip(made, result["made"], strict=True)]
        for lane, weight in enumerate(weights):
            assert abs(made[lane] - so_far * weight / sum(weights)) < len(weights), "never far from its share"
        assert result["contended"] is (n > 0)


def test_single_calls_are_shared_by_weight_because_debts_carry_over(sync_redis: Redis) -> None:
    ticks = [{"n": t % 2, "arrivals": [1000 * (t == 0)] * 2} for t in range(80)]
    made = [sum(result["made"][lane] for result in run(sync_redis, [1, 3], ticks)) for lane in (0, 1)]
    assert made == [10, 30]


def test_an_empty_lane_saves_no_calls(sync_redis: Redis) -> None:
    alone = [{"n": 10, "arrivals": [1000 * (t == 0), 0]} for t in range(50)]
    both = [{"n": 10, "arrivals": [0, 1000 * (t == 0)]} for t in range(10)]
    made = [result["made"][1] for result in run(sync_redis, [1, 1], alone + both)][50:]
    assert sum(made) == 50
