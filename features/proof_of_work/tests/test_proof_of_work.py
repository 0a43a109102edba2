"""Proof of work before joining: a solved challenge is valid for one place of one fan at one event, until it expires; a
fan without scripts waits instead, played by an attacker who would rather not.
"""

import asyncio
import base64
import json
import time
import uuid
from functools import partial
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import altcha
import httpx
import pytest

from features.pages.gateway import plain_pages
from features.proof_of_work import gateway
from features.proof_of_work import gateway as challenges
from features.proof_of_work.gateway import (
    DELAY_MAX_S,
    USE_WITHIN_S,
    WAITS_MAX,
    ArrivalRate,
    Challenges,
    EntryDelayed,
    EntryDelays,
    JoinPolicy,
    delay_s,
    hashes_needed,
    load_level,
)
from features.proof_of_work.rules import HASHES_MAX, FrictionRules, RoomFriction
from services.gateway.protection import rate_limits
from shared.contracts.file_parts import part_of
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.errors.problems import TooManyRequests
from shared.security.tokens import development_keys
from tests.gateway.conftest import AllSettings, gateway_client
from tests.gateway.frames import line_frame
from tests.support.wait import wait_until

PATH = "/events/show/queue"
NOW_S = 10_000.0
ON = {"friction": {"proof_of_work": "on", "least_hashes": 1_000, "most_hashes": 1_000}}


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins that were counted stay counted, however long the test takes."""
    monkeypatch.setattr(challenges, "time", SimpleNamespace(monotonic=lambda: NOW_S, time=time.time))


def solved(challenge: dict) -> dict[str, str]:
    """The request header with the solution."""
    parsed = altcha.Challenge.from_dict(challenge)
    solution = altcha.solve_challenge(parsed)
    assert solution is not None
    return {"onsale-proof-of-work": altcha.Payload(parsed, solution).to_base64()}


async def refused(answer: httpx.Response, reason: str) -> dict:
    """Checks that the join was refused for this reason; returns the new challenge."""
    body = answer.json()
    assert (answer.status_code, body["type"], body["reason"]) == (428, "/problems/proof-of-work-needed", reason)
    return body["challenge"]


async def test_a_room_without_proof_of_work_requires_none(fan, queue, monkeypatch):
    monkeypatch.setattr(JoinPolicy, "joining", None)  # fails the test if anything is looked at
    await queue.open()
    assert (await fan.post(PATH)).status_code == 201
    assert (await fan.get(f"{PATH}/challenge")).status_code == 204


async def test_a_fan_with_a_proof_joins_and_needs_no_second_one(fan, browser, queue):
    await queue.open(**ON)
    challenge = await refused(await fan.post(PATH), "needed")
    assert not queue.received("/joins", JoinBatch), "the queue got no request"
    joined = await fan.post(PATH, headers=solved(challenge))
    assert joined.status_code == 201
    by_cookie = await fan.post(PATH)
    by_bearer = await browser(authorization=f"Bearer {joined.json()['queue_token']}").post(PATH)
    assert {answer.json()["join_seq"] for answer in (by_cookie, by_bearer)} == {1}


async def test_a_challenge_can_be_fetched_before_joining(fan, queue):
    await queue.open(**ON)
    answer = await fan.get(f"{PATH}/challenge")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert (await fan.post(PATH, headers=solved(answer.json()))).status_code == 201


async def test_a_proof_sent_again_gives_the_same_place_at_every_process(browser, queue, settings):
    await queue.open(**ON)
    proof = solved((await browser().get(f"{PATH}/challenge")).json())
    async with gateway_client(settings) as other:
        answers = [await client.post(PATH, headers=proof) for client in (browser(), browser(), other, browser())]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    assert {answer.json()["join_seq"] for answer in answers} == {1}
    assert all(join.may_be_known for batch in queue.received("/joins", JoinBatch) for join in batch.joins), (
        "the queue looks for a known place first"
    )


async def test_a_proof_is_bound_to_its_idempotency_key(browser, queue):
    await queue.open(**ON)
    mine, another = ({"idempotency-key": str(uuid.uuid4())} for _ in range(2))
    proof = solved(await refused(await browser().post(PATH, headers=mine), "needed"))
    await refused(await browser().post(PATH, headers={**another, **proof}), "other")
    first = await browser().post(PATH, headers={**mine, **proof})
    again = await browser().post(PATH, headers={**mine, **proof})
    assert (first.status_code, again.status_code) == (201, 200)
    assert len(await queue.holders()) == 1


async def test_the_proof_of_another_event_is_refused(fan, queue):
    await queue.open(**ON)
    await queue.open("other", **ON)
    proof = solved((await fan.get("/events/other/queue/challenge")).json())
    await refused(await fan.post(PATH, headers=proof), "other")


async def test_an_expired_proof_is_refused_with_a_new_challenge(fan, queue):
    await queue.open(**ON)
    expired = Challenges(development_keys("queue-token")).create("show", "h" * 24, hashes=1_000, lasts_s=-1)
    challenge = await refused(await fan.post(PATH, headers=solved(expired)), "expired")
    assert (await fan.post(PATH, headers=solved(challenge))).status_code == 201


def forged() -> list[tuple[str, dict[str, str]]]:
    """Reasons and proofs of clients that did not solve the challenge of the gateway."""
    ours = Challenges(development_keys("queue-token")).create("show", "h" * 24, hashes=1_000, lasts_s=60)
    other_key = Challenges(development_keys("another")).create("show", "h" * 24, hashes=1_000, lasts_s=60)
    easier = {**ours, "parameters": {**ours["parameters"], "keyPrefix": ""}}
    other_holder = {**ours, "parameters": {**ours["parameters"], "data": {**ours["parameters"]["data"], "holder": "x"}}}
    unsigned = {"parameters": ours["parameters"]}
    unknown_key = {**ours, "parameters": {**ours["parameters"], "data": {"kid": "none"}}}
    unsolved = altcha.Payload(altcha.Challenge.from_dict(ours), altcha.Solution(0, "00" * 32)).to_base64()
    proofs = [("forged", solved(c)) for c in (other_key, easier, other_holder, unsigned, unknown_key)]
    return [*proofs, ("unsolved", {"onsale-proof-of-work": unsolved})]


async def test_a_forged_proof_is_refused(fan, queue):
    await queue.open(**ON)
    for reason, proof in forged():
        await refused(await fan.post(PATH, headers=proof), reason)
    assert not queue.calls["/joins"]


def proof_with(**changes: object) -> bytes:
    """A well-formed proof with these changes."""
    parameters = {"algorithm": "SHA-256", "nonce": "", "salt": "", "cost": 1, "keyLength": 32, "keyPrefix": "",
                  "data": {"kid": "dev"}, **changes}  # fmt: skip
    challenge = {"parameters": parameters, "signature": "x"}
    return base64.b64encode(json.dumps({"challenge": challenge, "solution": {"counter": 1, "derivedKey": ""}}).encode())


MALFORMED = [
    b"", b"\xff", b"x" * 3_000, b"bnVsbA==", base64.b64encode(b"[" * 1_500), base64.b64encode(b'{"challenge":[]}'),
    proof_with(), proof_with(data=[1]), proof_with(data={"kid": ["dev"]}), proof_with(expiresAt=float("inf")),
    proof_with(salt="\ud800"), proof_with(cost=10**400), proof_with(cost={}), proof_with(keyPrefix=None),
    proof_with(data={"kid": "dev", "__proto__": 1}),
]  # fmt: skip


@pytest.mark.parametrize("sent", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_proof_is_refused_as_invalid(sent: bytes):
    with pytest.raises(challenges.InvalidProof):
        Challenges(development_keys("queue-token")).verify(sent.decode("latin-1"), "show")


def test_the_work_grows_with_the_load_and_is_bounded():
    def hashes(waiting: int, joins_per_s: float, **rules: object) -> int:
        frame = line_frame(head=10, tail=10 + waiting, options={"friction": rules})
        friction = part_of(frame.options, RoomFriction).friction
        return hashes_needed(friction, load_level(friction, frame, joins_per_s))

    idle, longer_line, more_joins = (hashes(*at, proof_of_work="on") for at in ((0, 0), (25_000, 0), (0, 150)))
    assert idle == 20_000 < longer_line < more_joins < 300_000
    assert hashes(10**9, 10**6, proof_of_work="on") == 300_000
    assert hashes(10**9, 10**6, proof_of_work="on", most_hashes=HASHES_MAX) == HASHES_MAX
    assert hashes(10**9, 10**6) == 0
    assert [hashes(waiting, 0, proof_of_work="by_pressure") for waiting in (0, 12_000)] == [0, 0]
    assert hashes(13_000, 0, proof_of_work="by_pressure") > 0
    with pytest.raises(ValueError, match="less than or equal"):
        FrictionRules(most_hashes=HASHES_MAX + 1)
    with pytest.raises(ValueError, match="least_hashes"):
        FrictionRules(least_hashes=9_000, most_hashes=8_000)


@pytest.mark.usefixtures("no_time_passes")
async def test_many_joins_switch_proof_of_work_on_and_later_off(fan, browser, queue, policy):
    await queue.open(friction={"proof_of_work": "by_pressure", "busy_joins_per_s": 4, "least_hashes": 1_000})
    answers = [(await browser().post(PATH)).status_code for _ in range(15)]
    assert answers[:5] == [201] * 5
    assert answers[-1] == 428
    policy._arrivals._counts["show"] = (15.0, NOW_S - 60)
    assert (await fan.post(PATH)).status_code == 201, "off again after the rush"


@pytest.mark.parametrize("mode", ["by_pressure", "by_address", "on"])
async def test_asking_for_challenges_raises_nobodys_work(browser, queue, mode):
    rules = {"proof_of_work": mode, "busy_joins_per_s": 4, "address_joins": 5, "least_hashes": 1_000}
    await queue.open(friction=rules)
    address = {"x-forwarded-for": "198.51.100.1"}
    for _ in range(60):
        await browser().get(f"{PATH}/challenge", headers=address)
    first = await browser().get(f"{PATH}/challenge", headers=address)
    if mode != "on":
        assert first.status_code == 204
        return
    for _ in range(60):
        await refused(await browser().post(PATH, headers=address), "needed")
    asked = await browser().get(f"{PATH}/challenge", headers=address)
    assert asked.json()["parameters"]["data"]["hashes"] < 10_000, "nearly as few as in an idle room"


async def test_a_fan_who_joins_again_and_again_raises_nobodys_work(fan, browser, queue):
    rules = {"proof_of_work": "by_pressure", "busy_joins_per_s": 4, "least_hashes": 1_000}
    await queue.open(friction=rules)
    assert [(await fan.post(PATH)).status_code for _ in range(20)] == [201] + [200] * 19
    assert (await browser().post(PATH)).status_code == 201


@pytest.mark.usefixtures("no_time_passes")
async def test_proven_joins_count_as_joins(browser, queue, policy):
    await queue.open(**ON)
    for _ in range(3):
        challenge = await refused(await browser().post(PATH), "needed")
        assert (await browser().post(PATH, headers=solved(challenge))).status_code == 201
    assert policy._arrivals._counts["show"][0] == pytest.approx(3, abs=0.5)


def test_arrival_rates_are_kept_for_a_bounded_number_of_events():
    arrivals = ArrivalRate(events_max=10)
    for number in range(1_000):
        arrivals.record(f"event-{number}", now_s=number)
    assert len(arrivals._counts) == 10
    assert arrivals.per_s("event-999", now_s=999) == pytest.approx(0.1)
    assert arrivals.per_s("event-999", now_s=2_000) < 1e-9


def test_proof_of_work_accepts_on_and_off_that_yaml_reads_as_booleans():
    assert [FrictionRules(proof_of_work=value).proof_of_work for value in (True, False)] == ["on", "off"]


async def test_only_a_live_place_exempts_from_the_proof(fan, browser, queue):
    await queue.open(**ON)
    joined = await fan.post(PATH, headers=solved(await refused(await fan.post(PATH), "needed")))
    token = joined.json()["queue_token"]
    await queue.end(1, "left")
    for client in (fan, browser(authorization=f"Bearer {token}")):
        await wait_until(partial(_needs_proof_again, client))
        again = await refused(await client.post(PATH), "needed")
        answer = await client.post(PATH, headers=solved(again))
        assert answer.status_code in (200, 201), "a fan with a new proof joins again"


async def _needs_proof_again(client) -> bool:
    """The gateway caches the status of the place for a second."""
    return (await client.post(PATH)).status_code == 428


@pytest.mark.usefixtures("no_time_passes")
async def test_by_default_only_an_address_with_a_swarm_must_prove_work(browser, queue):
    await queue.open(friction={"address_joins": 20})
    swarm, other = {"x-forwarded-for": "2001:db8:1:2::7"}, {"x-forwarded-for": "198.51.100.2"}
    statuses = [(await browser().post(PATH, headers=swarm)).status_code for _ in range(60)]
    assert statuses[:20] == [201] * 20
    assert statuses[25:] == [428] * 35
    challenge = (await browser().get(f"{PATH}/challenge", headers={"x-forwarded-for": "2001:db8:1:2::8"})).json()
    assert (await browser().post(PATH, headers=swarm | solved(challenge))).status_code == 201
    assert (await browser().post(PATH, headers=other)).status_code == 201
    assert (await browser().post(PATH)).status_code == 201


async def test_by_default_a_school_behind_one_address_joins_and_a_swarm_must_prove_work(queue, settings, monkeypatch):
    monkeypatch.setattr(rate_limits, "time", SimpleNamespace(monotonic=lambda: 0.0))  # no token is added meanwhile
    await queue.open()
    by_default = AllSettings(queue_url=settings.queue_url, redis_url=settings.redis_url)
    async with gateway_client(by_default) as fans:
        school = {"x-forwarded-for": "198.51.100.1", "origin": "http://gateway"}
        statuses: list[int] = []
        began_s = time.monotonic()
        for _ in range(550):  # the burst of one address is 500
            fans.cookies.clear()
            statuses.append((await fans.post(PATH, headers=school)).status_code)
        assert statuses[:100] == [201] * 100, "the size of a school"
        lasted_s = time.monotonic() - began_s
        decayed = 100 * (2 + lasted_s / 10)  # the count decays by 1/e in ten seconds
        assert sum(status == 201 for status in statuses[100:]) < decayed - 100, "only as many more as decayed"
        assert {428, 429} <= set(statuses[100:]), "the rest must prove work and is slowed"
        other_address = await fans.get(f"{PATH}/challenge", headers={"x-forwarded-for": "198.51.100.2"})
        assert other_address.status_code == 204, "no other address is affected"


JOIN, PAGE = "/events/show/queue", "/e/show"
HASHES = 100_000
DELAYING = {"friction": {"proof_of_work": "on", "least_hashes": HASHES, "most_hashes": HASHES}}
CLIENT = {"x-forwarded-for": "203.0.113.7"}


class Clock:
    """The clocks of the entry delay and of the page that shows it, moved by the test."""

    def __init__(self) -> None:
        self.ahead_s, self._time, self._monotonic = 0.0, time.time, time.monotonic

    def time(self) -> float:
        return self._time() + self.ahead_s

    def monotonic(self) -> float:
        return self._monotonic() + self.ahead_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (gateway, plain_pages):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
async def visitor(fan, queue, clock):
    await queue.open(**DELAYING)
    await fan.get(PAGE)
    return fan


async def begin(client, **fields: str) -> str:
    """Presses the button for the first time; the token of the wait."""
    answer = await client.post(JOIN, data={"code": "", **fields})
    assert answer.status_code == 303
    [token] = parse_qs(urlsplit(answer.headers["location"]).query)["entry"]
    return token


async def joins(client, token: str) -> bool:
    answer = await client.post(JOIN, data={"entry": token})
    assert answer.status_code == 303
    return answer.headers["location"] == PAGE


async def test_a_fan_waits_as_long_as_a_slow_phone_computes_and_joins(visitor, queue, clock):
    token = await begin(visitor)
    assert not await joins(visitor, token), "at once"
    page = await visitor.get(PAGE, params={"entry": token})
    assert f'name="entry" value="{token}"' in page.text
    assert 1 <= int(page.headers["refresh"]) <= HASHES // 20_000 + 1
    clock.ahead_s = HASHES // 20_000 - 1.5
    assert not await joins(visitor, token), "a moment before"
    assert queue.received("/joins", JoinBatch) == []
    clock.ahead_s += 3
    assert "The wait is over" in (await visitor.get(PAGE, params={"entry": token})).text
    assert await joins(visitor, token)
    assert len(await queue.holders()) == 1


async def test_pressing_early_does_not_begin_the_wait_anew(visitor, clock):
    token = await begin(visitor)
    assert await begin(visitor, entry=token) == token


async def test_one_wait_is_good_for_one_place_however_often_it_is_used(visitor, browser, queue, clock):
    token = await begin(visitor)
    clock.ahead_s = 10
    secret = visitor.cookies["onsale_browser"]
    for _ in range(20):
        copy = browser(cookie=f"onsale_browser={secret}")
        assert await joins(copy, token)
    assert len(set(await queue.holders())) == 1


async def test_a_wait_is_bound_to_its_browser_and_its_event(visitor, browser, queue, clock):
    token = await begin(visitor)
    clock.ahead_s = 10
    other = browser()
    await other.get(PAGE)
    assert not await joins(other, token)
    await queue.open("other", **DELAYING)
    answer = await visitor.post("/events/other/queue", data={"entry": token})
    assert "entry=" in answer.headers["location"]
    assert queue.received("/joins", JoinBatch) == []


async def test_a_forged_or_expired_wait_counts_as_none(visitor, queue, clock):
    token = await begin(visitor)
    kid, not_before, expires, mac = token.split(".")
    earlier, later = str(int(not_before) - 60), str(int(expires) + 10**6)
    forged = [
        f"{kid}.{earlier}.{expires}.{mac}", f"{kid}.{not_before}.{later}.{mac}", f"nokey.{not_before}.{expires}.{mac}",
        f"{kid}.{earlier}.{expires}.{'A' * 43}", f"{kid}.{earlier}{'9' * 30}.{expires}.{mac}", "x", "..." , "é" * 20,
    ]  # fmt: skip
    for each in forged:
        assert not await joins(visitor, each), each
        clock.ahead_s += 6  # so that the waits of this address do not run out
    clock.ahead_s = 10 + USE_WITHIN_S
    assert not await joins(visitor, token), "expired"
    assert queue.received("/joins", JoinBatch) == []


async def test_a_client_of_the_api_cannot_wait_instead_of_proving(visitor, queue, clock):
    token = await begin(visitor)
    clock.ahead_s = 10
    answer = await visitor.post(JOIN, json={}, headers={"onsale-entry-delay": token, "entry": token})
    assert (answer.status_code, answer.json()["type"]) == (428, "/problems/proof-of-work-needed")
    assert queue.received("/joins", JoinBatch) == []


async def test_few_fans_of_an_address_wait_at_a_time(visitor, browser, queue, clock):
    swarm = [browser(**CLIENT) for _ in range(WAITS_MAX + 3)]
    for each in swarm:
        await each.get(PAGE)
    answers = await asyncio.gather(*(each.post(JOIN, data={"code": ""}) for each in swarm))
    waiting = [answer for answer in answers if "entry=" in answer.headers["location"]]
    refused = [answer for answer in answers if answer.headers["location"].endswith("problem=too-many-requests")]
    assert (len(waiting), len(refused)) == (WAITS_MAX, 3)
    elsewhere = browser(**{"x-forwarded-for": "203.0.113.8"})
    await elsewhere.get(PAGE)
    await begin(elsewhere)
    clock.ahead_s = 6
    await begin(swarm[answers.index(refused[0])])


def test_a_wait_is_not_cheaper_than_the_proof():
    """Places a second that one address gets by waiting, against those that one core of a desktop computer proves."""
    desktop_hashes_per_s = 770_000  # measured: docs/decisions/0012
    for hashes in (1_000, 20_000, 300_000, 1_000_000):
        assert 1 <= delay_s(hashes) <= DELAY_MAX_S
        assert WAITS_MAX / delay_s(hashes) < desktop_hashes_per_s / (hashes / 2)


def test_an_unknown_address_is_one_address():
    delays, fan = EntryDelays(development_keys("queue-token"), addresses_max=10), JoinRequest(holder="h")
    refusals = 0
    for _ in range(WAITS_MAX + 1):
        try:
            delays.require("show", fan, None, hashes=HASHES, address=None)
        except TooManyRequests:
            refusals += 1
        except EntryDelayed:
            pass
    assert refusals == 1


async def test_a_room_without_proof_of_work_lets_a_form_join_at_once(fan, queue):
    await queue.open()
    await fan.get(PAGE)
    assert (await fan.post(JOIN, data={"code": ""})).headers["location"] == PAGE
