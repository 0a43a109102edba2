"""How lanes share calls, held against what a person with a notebook would say: random weights, arrivals and rates."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from services.queue.line import redis_line

DRIVER = """
local story, answer = cjson.decode(ARGV[1]), {}
local lanes = {}
for i, weight in ipairs(story.weights) do lanes[i] = {weight = weight, owed = 0, here = 0} end
for t, turn in ipairs(story.turns) do
  for i, more in ipairs(turn.arrivals) do
    lanes[i].here = lanes[i].here + more
    lanes[i].waits = lanes[i].here > 0
  end
  local calls, contended = share_calls(lanes, turn.n, function(lane, want)
    local got = math.min(want, lane.here)
    lane.here = lane.here - got
    return got
  end)
  answer[t] = {calls = calls, contended = contended, made = {}, owed = {}}
  for i, lane in ipairs(lanes) do answer[t].made[i], answer[t].owed[i] = lane.made, lane.owed end
end
return cjson.encode(answer)
"""
SHARE = redis_line.TICK.source.split("local function save_shares")[0]


def told(redis: Redis, weights: list[int], turns: list[dict[str, Any]], *, script: str = SHARE) -> list[dict[str, Any]]:
    return json.loads(redis.eval(script + DRIVER, 0, json.dumps({"weights": weights, "turns": turns})))


@pytest.fixture
def db(redis_url: str):
    with Redis.from_url(redis_url) as redis:
        yield redis


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[int], list[dict[str, Any]]]:
    weights = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=5))
    calls = st.one_of(st.integers(0, 2), st.integers(0, 2000))
    arrivals = st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 3000)),
                        min_size=len(weights), max_size=len(weights))  # fmt: skip
    turn = st.fixed_dictionaries({"n": calls, "arrivals": arrivals})
    return weights, draw(st.lists(turn, min_size=1, max_size=40))


QUICKLY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICKLY
@given(story=stories())
def test_no_call_is_wasted_none_is_made_up_and_nobody_is_owed_much(db: Redis, story) -> None:
    weights, turns = story
    here = [0] * len(weights)
    for turn, did in zip(turns, told(db, weights, turns), strict=True):
        here = [at + more for at, more in zip(here, turn["arrivals"], strict=True)]
        assert sum(did["made"]) == did["calls"] == min(turn["n"], sum(here)), "what one cannot use goes to the others"
        assert all(0 <= made <= at for made, at in zip(did["made"], here, strict=True))
        assert all(abs(owed) < len(weights) for owed in did["owed"])
        here = [at - made for at, made in zip(here, did["made"], strict=True)]


@QUICKLY
@given(weights=st.lists(st.integers(1, 100), min_size=2, max_size=6),
       calls=st.lists(st.one_of(st.integers(0, 1), st.integers(0, 900)), min_size=20, max_size=60))  # fmt: skip
def test_shares_follow_the_weights_call_by_call_at_any_rate(db: Redis, weights, calls) -> None:
    turns = [{"n": n, "arrivals": [10**6 if t == 0 else 0] * len(weights)} for t, n in enumerate(calls)]
    made, so_far = [0] * len(weights), 0
    for n, did in zip(calls, told(db, weights, turns), strict=True):
        so_far += n
        made = [all_ + now for all_, now in zip(made, did["made"], strict=True)]
        for lane, weight in enumerate(weights):
            assert abs(made[lane] - so_far * weight / sum(weights)) < len(weights), "never far from its share"
        assert did["contended"] is (n > 0)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_call_at_a_time_is_shared_only_because_what_is_owed_is_carried(db: Redis, guarded: bool) -> None:
    script = SHARE if guarded else SHARE.replace("lane.made = 0", "lane.made, lane.owed = 0, 0")
    turns = [{"n": t % 2, "arrivals": [1000 * (t == 0)] * 2} for t in range(80)]
    made = [sum(did["made"][lane] for did in told(db, [1, 3], turns, script=script)) for lane in (0, 1)]
    assert (made == [10, 30]) == guarded


@pytest.mark.parametrize("guarded", [True, False])
def test_a_lane_that_was_empty_saves_nothing_up(db: Redis, guarded: bool) -> None:
    forfeits = "fresh, lane.owed, contended = math.max(0, lane.owed), math.min(0, lane.owed), false"
    assert forfeits in SHARE
    script = SHARE if guarded else SHARE.replace(forfeits, "contended = false")
    alone = [{"n": 10, "arrivals": [1000 * (t == 0), 0]} for t in range(50)]
    both = [{"n": 10, "arrivals": [0, 1000 * (t == 0)]} for t in range(10)]
    made = [did["made"][1] for did in told(db, [1, 1], alone + both, script=script)][50:]
    assert (sum(made) == 50) == guarded
