"""Lanes: access codes and JWT claims choose one, wrong codes are limited, and the public line lists the lanes."""

import asyncio
from collections import Counter

import pytest
from pydantic import ValidationError

from services.gateway.state import State
from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.contracts.room_options import Lane, RoomOptions, lane_of
from shared.security.limits import Buckets
from shared.security.tokens import QueueToken
from tests.gateway.frames import lanes, line_frame, new_frame, snapshot
from tests.support.running.queue_service import TEST

PATH = "/events/show/queue"
GENERAL = {"lane": 0, "name": "General", "weight": 1}
PRESALE = {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}
GOLD = {"lane": 2, "name": "Gold", "weight": 6, "claim": {"name": "tier", "value": "gold"}}
OPTIONS = RoomOptions.model_validate({"lanes": [GENERAL, PRESALE, GOLD]})
LATER = "2030-01-01T00:00:00Z"


def frame(options: RoomOptions = OPTIONS, version: int = 9, **heads: tuple[int, int]) -> LineFrame:
    return line_frame(version=version, lanes=lanes(**heads), options=options.model_dump())


@pytest.fixture
async def code(queue) -> str:
    """A code that is good for one place in the lane of the presale."""
    await queue.open(lanes=[GENERAL, PRESALE])
    [code] = await queue.state.access_codes.create(await queue.state.rooms.get("show"), TEST, lane=1, count=1, uses=1)
    return code


async def test_an_access_code_in_the_body_is_sent_to_the_queue(fan, queue, code):
    joined = await fan.post(PATH, json={"code": code})
    assert (joined.status_code, joined.json()["lane"]) == (201, 1)
    [batch] = queue.received("/joins", JoinBatch)
    assert [join.code for join in batch.joins] == [code]
    assert (await fan.post(PATH, json={})).status_code == 200
    assert queue.received("/joins", JoinBatch)[-1].joins[0].code is None


async def test_a_refused_access_code_is_a_problem_and_the_fan_can_join_without_it(fan, browser, queue, code):
    assert (await browser().post(PATH, json={"code": code})).status_code == 201
    for refused, slug, status in (("wrong", "code-unknown", 403), (code, "code-used-up", 409)):
        answer = await fan.post(PATH, json={"code": refused})
        assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
        assert "set-cookie" not in answer.headers
    assert (await fan.post(PATH)).status_code == 201


async def test_a_malformed_access_code_is_refused_and_only_joins_take_one(fan, queue):
    await queue.open()
    for code in ("x" * 201, 7, ["a"]):
        refused = await fan.post(PATH, json={"code": code})
        assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json"), code
    assert not queue.calls["/joins"]
    await fan.post(PATH)
    for method, path in (("POST", f"{PATH}/pass"), ("DELETE", PATH)):
        assert (await fan.request(method, path, json={"code": "7K3M"})).status_code == 422


async def test_an_access_code_is_taken_as_it_was_pasted_and_nothing_is_none(fan, queue):
    await queue.open()
    for code in ("\u00a0wrong\n", "x" * 200, "nul\0"):
        answer = await fan.post(PATH, json={"code": code})
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/code-unknown"), code
    for code in ("", " ", "\u200b\n"):
        assert (await fan.post(PATH, json={"code": code})).is_success, "a join without a code"


@pytest.mark.parametrize("limited", [True, False])
async def test_wrong_access_codes_of_an_event_are_limited_and_joins_without_one_are_not(
    browser, queue, code, monkeypatch, limited: bool
):
    monkeypatch.setattr("shared.security.limits.monotonic", lambda: 1000.0)
    if not limited:
        monkeypatch.setattr(Buckets, "take", lambda self, key, *, now_s: 0.0)
    answers = [await browser().post(PATH, json={"code": f"guess-{n}"}) for n in range(110)]
    requested = sum(len(batch.joins) for batch in queue.received("/joins", JoinBatch))
    assert (requested == 100) == limited
    if limited:
        assert (answers[-1].status_code, answers[-1].json()["type"]) == (429, "/problems/too-many-wrong-codes")
        assert answers[-1].headers["retry-after"] == "1"
    assert (await browser().post(PATH)).status_code == 201
    monkeypatch.setattr("shared.security.limits.monotonic", lambda: 1001.0)
    assert (await browser().post(PATH, json={"code": code})).status_code == 201


async def test_verified_claims_choose_the_lane_and_the_lane_of_an_old_token_does_not(state: State, browser, queue):
    await queue.open(lanes=[GENERAL, PRESALE, GOLD])
    await state.join_batcher.join("show", JoinRequest(holder="ann"), {"sub": "u-1", "tier": "gold"})
    await state.join_batcher.join("show", JoinRequest(holder="ben"), {"sub": "u-2", "tier": "silver"})
    assert [join.lane for batch in queue.received("/joins", JoinBatch) for join in batch.joins] == [2, 0]
    token = state.token_reader.sign(
        QueueToken(event_id="show", epoch=1, lane=1, join_seq=7, holder="cyd", issued_at_s=0)
    )
    await browser(authorization=f"Bearer {token}").post(PATH)
    [known] = queue.received("/joins", JoinBatch)[-1].joins
    assert (known.holder, known.lane, known.may_be_known) == ("cyd", 0, True)


def test_claims_choose_the_lane_with_the_largest_weight_that_they_open():
    rules = [
        *OPTIONS.lanes,
        Lane.model_validate({"lane": 3, "name": "Crew", "weight": 2, "claim": {"name": "roles", "value": "crew"}}),
        Lane.model_validate({"lane": 4, "name": "Adult", "weight": 6, "claim": {"name": "adult", "value": True}}),
    ]
    for claims, lane in (
        (None, 0), ({}, 0), ({"tier": "silver"}, 0), ({"tier": "gold"}, 2), ({"tier": ["silver", "gold"]}, 2),
        ({"roles": ["crew"]}, 3), ({"roles": ["crew"], "tier": "gold"}, 2), ({"tier": {"gold": 1}}, 0),
        ({"adult": True}, 4), ({"adult": 1}, 0), ({"adult": "True"}, 0), ({"adult": True, "tier": "gold"}, 2),
        ({"tier": "goldfish"}, 0), ({"tier": None}, 0),
    ):  # fmt: skip
        assert lane_of(claims, rules) == lane, claims
    assert lane_of({"tier": "gold"}, OPTIONS.lanes[:2]) == 0


@pytest.mark.parametrize("wrong", [
    [], [PRESALE], [{"lane": 0, "name": "A"}, {"lane": 0, "name": "B"}],
    [{"lane": 0, "name": "A", "code_required": True}],
    [{"lane": 0, "name": "A"}, {"lane": 1, "name": "B"}], [{"lane": 0, "name": "A"}, {**PRESALE, "lane": 16}],
    [{"lane": 0, "name": "A"}, {**PRESALE, "weight": 0}], [{"lane": 0, "name": "A", "wait": 1}],
])  # fmt: skip
def test_invalid_lanes_are_refused(wrong):
    with pytest.raises(ValidationError):
        RoomOptions.model_validate({"lanes": wrong})


def test_the_wait_estimate_uses_the_share_of_the_lane():
    line = snapshot(frame(_0=(0, 50), _1=(0, 50), _2=(0, 0)))
    assert line.estimated_wait_s(25, 0) == 10, "a quarter of ten a second"
    assert line.estimated_wait_s(75, 1) == 10
    assert line.estimated_wait_s(60, 2) == 10, "six of ten a second, once a fan is in the lane"
    alone = snapshot(frame(_0=(0, 50), _1=(9, 9), _2=(0, 0)))
    assert alone.estimated_wait_s(50) == 5


async def test_a_lane_before_its_start_is_a_prequeue_with_its_opening_time(fan, queue, publish_frame):
    early = RoomOptions.model_validate({"lanes": [{"lane": 0, "name": "General", "opens_at": LATER}, PRESALE]})
    await queue.open()
    await fan.post(PATH)
    await publish_frame(new_frame(lanes=lanes(_0=(0, 5), _1=(2, 4)), options=early.model_dump()))
    status = (await fan.get(f"{PATH}/status")).json()
    assert (status["status"], status["estimated_wait_time"]) == ("prequeue", None)
    body = (await fan.get(PATH)).json()
    assert (body["tail_seq"], body["opens_at"]) == (5, "2030-01-01T00:00:00.000Z")
    assert body["lanes"]["1"].pop("seconds_per_place") > 0
    assert body["lanes"] == {"1": {"head_seq": 2, "tail_seq": 4, "name": "Presale", "code_required": True,
                                   "estimate_changed": None}}  # fmt: skip


def test_a_lane_missing_from_a_frame_keeps_its_head():
    before = snapshot(frame(_0=(0, 5), _1=(3, 9)))
    after = snapshot(frame(_0=(1, 5)), before)
    assert after.position(1, 9) == 6, "a position never rises"


async def test_access_codes_guessed_at_once_are_checked_to_the_limit_only(browser, queue):
    await queue.open()
    guesser = {"x-forwarded-for": "198.51.100.7"}
    guesses = (browser().post(PATH, json={"code": f"no-{n}"}, headers=guesser) for n in range(90))
    answers = Counter(answer.status_code for answer in await asyncio.gather(*guesses))
    assert answers == {403: 50, 429: 40}
    assert sum(len(batch.joins) for batch in queue.received("/joins", JoinBatch)) == 50


async def test_wrong_access_codes_are_limited_for_each_address(browser, queue):
    await queue.open()
    guesser = {"x-forwarded-for": "198.51.100.7"}
    statuses = [(await browser().post(PATH, json={"code": f"no-{n}"}, headers=guesser)).status_code for n in range(60)]
    assert statuses == [403] * 50 + [429] * 10
    other = await browser().post(PATH, json={"code": "no"}, headers={"x-forwarded-for": "198.51.100.8"})
    assert other.status_code == 403, "another address is not limited"
