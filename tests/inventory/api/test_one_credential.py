"""One credential is enough: a queue token or a user's JWT opens the seats to a fan who is ready."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from services.inventory.api import auth
from services.inventory.settings import Settings
from shared.contracts.queue import HoldersQuestion, PlacesQuestion
from shared.runtime.clock import now_s
from shared.runtime.settings import development_keys
from shared.security.order_tokens import checkout_key
from shared.security.tokens import Keyring, PassReader, QueueToken, QueueTokens
from shared.security.user_jwt import holder_of
from shared.web.problems import Unavailable
from tests.gateway.fake_queue import FakeQueue, FakeRoom, listening
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass, start
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, by_secret
from tests.support.running.suite import bearer, problem

SEATS = f"/events/{EVENT}/sections/A/seats"
HOLDS = f"/events/{EVENT}/reservations"
OUR_PAGES = {"origin": "http://fans"}


@pytest.fixture
async def queue() -> AsyncIterator[FakeQueue]:
    async with listening() as fake:
        yield fake


@pytest.fixture
async def inventory(settings: Settings, queue: FakeQueue) -> AsyncIterator[Inventory]:
    users = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    chosen = Settings(**(settings.model_dump() | users | {"queue_url": queue.url}))
    async for running in start(chosen):
        assert (await running.put(event_file())).status_code == 200
        await running.ready()
        yield running


def token(join_seq: int = 1, *, event_id: str = EVENT, epoch: int = 1, keys: Keyring | None = None) -> str:
    place = QueueToken(event_id, epoch, 0, join_seq, f"holder-{join_seq}", int(time.time()))
    return QueueTokens(keys or development_keys("queue-token")).sign(place)


def line(queue: FakeQueue, *users: str, **facts: Any) -> FakeRoom:
    holders = ["holder-1", "holder-2", *(holder_of(development_keys("holder"), user) for user in users)]
    return queue.open(EVENT, **{"holders": holders, "head_seq": len(holders), **facts})


def handed_over(answer: httpx.Response) -> str:
    """The pass in the header, which is also the cookie's, with the checkout key of that admission."""
    text = answer.headers["onsale-pass"]
    admission = PassReader(development_keys("pass").public()).read(text, now_s=now_s())
    assert answer.headers["onsale-checkout-key"] == checkout_key(development_keys("checkout"), admission.jti)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"onsale_pass_{EVENT}={text};")
    assert "HttpOnly" in cookie
    return text


async def test_a_queue_token_of_a_fan_who_is_ready_opens_the_seats(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue)
    seats = await inventory.fans.get(SEATS, headers=bearer(token()))
    assert (seats.status_code, seats.json()["total_seats"]) == (200, 15)
    held = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert held.status_code == 201
    assert handed_over(seats) == handed_over(held)
    by_pass = await inventory.mine_by(held.headers["onsale-pass"], held.json()["reservation_id"])
    assert by_pass.status_code == 200
    assert "onsale-pass" not in by_pass.headers


async def test_a_users_jwt_opens_the_seats_too(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue, "ada")
    held = await inventory.reserve(token=by_secret("ada"), seats=["A-1-1"])
    assert held.status_code == 201
    handed_over(held)
    seen = await inventory.mine_by(by_secret("ada"), held.json()["reservation_id"])
    assert seen.json()["seats"] == ["A-1-1"]
    assert problem(await inventory.mine_by(by_secret("bob"), held.json()["reservation_id"])) == (
        404,
        "unknown-reservation",
    )


async def test_a_refusal_after_the_claim_still_brings_the_pass(inventory: Inventory, queue: FakeQueue) -> None:
    """Otherwise the fan would have used up the call and hold nothing."""
    line(queue)
    assert (await inventory.reserve("another", seats=["A-1-1"])).status_code == 201
    refused = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert problem(refused) == (409, "seats-taken")
    handed_over(refused)
    unreadable = await inventory.fans.post(HOLDS, content=b"{", headers=bearer(token(2)))
    assert problem(unreadable) == (400, "malformed-request")
    handed_over(unreadable)


async def test_who_waits_is_refused_and_the_queue_is_asked_once_a_second(
    inventory: Inventory, queue: FakeQueue
) -> None:
    room = line(queue, head_seq=0)
    for _ in range(10):
        answer = await inventory.fans.get(SEATS, headers=bearer(token()))
        assert problem(answer) == (403, "not-admitted")
        assert int(answer.headers["retry-after"]) >= 1
    assert queue.calls["/claims"] == 1
    room.head_seq = 1
    remembered = inventory.state.authenticator.pass_claimer._cache
    for place, (until_s, claimed) in remembered.items():
        remembered[place] = until_s - auth.NOT_ADMITTED_CACHE_S, claimed
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200


async def test_twenty_requests_at_once_are_one_claim(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(token())) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({handed_over(answer) for answer in answers}) == 1
    claims = [place for question in queue.received(PlacesQuestion) for place in question.places]
    assert 1 <= len(claims) <= 2, "at most one batch more, of those who came while the first was on its way"
    asked = queue.calls["/claims"]
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200
    assert queue.calls["/claims"] == asked, "remembered"


async def test_a_crowd_is_asked_about_together(inventory: Inventory, queue: FakeQueue) -> None:
    users = [f"user-{n}" for n in range(40)]
    line(queue, *users)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(by_secret(user))) for user in users))
    assert {answer.status_code for answer in answers} == {200}
    assert len(queue.received(HoldersQuestion)) + queue.calls["/claims"] <= 8


async def test_a_pass_asks_nobody(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue)
    for text in (make_pass("holder-1"),):
        answer = await inventory.fans.get(SEATS, headers=bearer(text))
        assert answer.status_code == 200
        assert "onsale-pass" not in answer.headers
    assert not queue.requests


async def test_what_is_remembered_of_turns_is_bounded(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue, *(f"user-{n}" for n in range(20)), head_seq=0)
    inventory.state.authenticator.pass_claimer._cache_max = 3
    for join_seq in range(1, 9):
        await inventory.fans.get(SEATS, headers=bearer(token(join_seq)))
    assert len(inventory.state.authenticator.pass_claimer._cache) == 3


async def test_other_credentials_open_nothing(inventory: Inventory, queue: FakeQueue) -> None:
    room = line(queue)
    strangers = Keyring({"dev": b"x" * 32})
    for text, refusal in (
        (token(event_id="another"), (403, "wrong-event")),
        (token(keys=strangers), (401, "bad-credential")),
        (token(epoch=7), (410, "stale-epoch")),
        (make_pass("fan", event_id="another"), (403, "wrong-event")),
        (make_pass("fan", lasts_s=-60), (401, "bad-credential")),
        (by_secret("ada", exp=1), (401, "bad-credential")),
        (by_secret("nobody-here"), (404, "not-in-queue")),
        ("x.y.z", (401, "bad-credential")),
    ):
        assert problem(await inventory.fans.get(SEATS, headers=bearer(text))) == refusal, text
        assert problem(await inventory.reserve(token=text, seats=["A-1-1"])) == refusal, text
    assert problem(await inventory.fans.get(SEATS)) == (401, "no-credential")
    room.ended[1] = "left"
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (410, "place-expired")
    assert await inventory.left("A") == (15, 0)


async def test_after_a_reset_a_user_is_found_in_the_new_line(inventory: Inventory, queue: FakeQueue) -> None:
    room = line(queue, "ada", head_seq=0)
    jwt = bearer(by_secret("ada"))
    assert problem(await inventory.fans.get(SEATS, headers=jwt)) == (403, "not-admitted")
    inventory.state.authenticator.pass_claimer._cache.clear()
    room.epoch, room.head_seq = 2, 3
    assert (await inventory.fans.get(SEATS, headers=jwt)).status_code == 200


async def test_an_unavailable_queue_is_503(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue)
    queue.fail = [Unavailable()] * 9
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (503, "unavailable")


async def test_the_queue_cookie_is_enough_for_our_own_pages_only(inventory: Inventory, queue: FakeQueue) -> None:
    line(queue)
    cookies = {"cookie": f"onsale_pass_{EVENT}={make_pass('holder-1', lasts_s=-60)}; onsale_queue_{EVENT}={token()}"}
    seats = await inventory.fans.get(SEATS, headers=cookies)
    assert seats.status_code == 200, "the pass has expired, the place has not"
    ours = await inventory.fans.post(HOLDS, json={"seats": ["A-1-1"]}, headers=cookies | OUR_PAGES)
    assert ours.status_code == 201
    theirs = await inventory.fans.post(
        HOLDS, json={"seats": ["A-1-2"]}, headers=cookies | {"origin": "http://elsewhere"}
    )
    assert problem(theirs) == (403, "foreign-origin")
