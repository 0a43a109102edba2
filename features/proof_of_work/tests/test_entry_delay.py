"""With proof of work on, a fan without scripts waits instead; played by an attacker who would rather not."""

import asyncio
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from features.pages.gateway import plain_pages
from features.proof_of_work import gateway
from features.proof_of_work.gateway import (
    DELAY_MAX_S,
    USE_WITHIN_S,
    WAITS_MAX,
    EntryDelayed,
    EntryDelays,
    delay_s,
)
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.errors.problems import TooManyRequests
from shared.security.tokens import development_keys

PATH, PAGE = "/events/show/queue", "/e/show"
HASHES = 100_000
ON = {"friction": {"proof_of_work": "on", "least_hashes": HASHES, "most_hashes": HASHES}}
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
    await queue.open(**ON)
    await fan.get(PAGE)
    return fan


async def begin(client, **fields: str) -> str:
    """Presses the button for the first time; the token of the wait."""
    answer = await client.post(PATH, data={"code": "", **fields})
    assert answer.status_code == 303
    [token] = parse_qs(urlsplit(answer.headers["location"]).query)["entry"]
    return token


async def joins(client, token: str) -> bool:
    answer = await client.post(PATH, data={"entry": token})
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
    await queue.open("other", **ON)
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
    answer = await visitor.post(PATH, json={}, headers={"onsale-entry-delay": token, "entry": token})
    assert (answer.status_code, answer.json()["type"]) == (428, "/problems/proof-of-work-needed")
    assert queue.received("/joins", JoinBatch) == []


async def test_few_fans_of_an_address_wait_at_a_time(visitor, browser, queue, clock):
    swarm = [browser(**CLIENT) for _ in range(WAITS_MAX + 3)]
    for each in swarm:
        await each.get(PAGE)
    answers = await asyncio.gather(*(each.post(PATH, data={"code": ""}) for each in swarm))
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
    assert (await fan.post(PATH, data={"code": ""})).headers["location"] == PAGE
