"""How lanes share calls by weight: properties over random weights, arrivals and rates."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from services.queue.admission.gatekeeper import TICK

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
