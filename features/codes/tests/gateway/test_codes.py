"""Codes at the gateway: they are sent on, refusals are problems, and wrong ones are limited."""

import asyncio
from collections import Counter

import pytest

from features.codes.queue.access_codes import create
from features.codes.schemas import CreateAccessCodes
from shared.contracts.queue import JoinBatch
from shared.security.auth import Operator
from shared.security.limits import Buckets

PATH = "/events/show/queue"
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]


@pytest.fixture
async def code(queue) -> str:
    """A code that is good for one place in the lane of the presale."""
    await queue.open(lanes=LANES)
    return (await create("show", CreateAccessCodes(lane=1), Operator("test", "operator"), queue.state)).codes[0]


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


async def test_access_codes_guessed_at_once_are_checked_to_the_limit_only(browser, queue):
    await queue.open()
    guesser = {"x-forwarded-for": "198.51.100.7"}
    guesses = (browser().post(PATH, json={"code": f"no-{n}"}, headers=guesser) for n in range(90))
    answers = Counter(answer.status_code for answer in await asyncio.gather(*guesses))
    assert answers == {403: 50, 429: 40}
    assert sum(len(batch.joins) for batch in queue.received("/joins", JoinBatch)) == 50


async def test_wrong_access_codes_are_limited_for_each_address(browser, queue, monkeypatch):
    monkeypatch.setattr("shared.security.limits.monotonic", lambda: 1000.0)
    await queue.open()
    guesser = {"x-forwarded-for": "198.51.100.7"}
    statuses = [(await browser().post(PATH, json={"code": f"no-{n}"}, headers=guesser)).status_code for n in range(60)]
    assert statuses == [403] * 50 + [429] * 10
    other = await browser().post(PATH, json={"code": "no"}, headers={"x-forwarded-for": "198.51.100.8"})
    assert other.status_code == 403, "another address is not limited"
