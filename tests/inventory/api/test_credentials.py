"""Credentials of fans: a pass, or the queue token or user JWT of a called fan, which inventory claims for a pass."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from services.inventory.api import auth
from services.inventory.settings import Settings
from shared.contracts.queue import HoldersQuestion, PlacesQuestion
from shared.errors.problems import Unavailable
from shared.runtime.clock import now_s
from shared.security.tokens import Keyring, PassReader, QueueToken, QueueTokens, checkout_key, development_keys
from shared.security.user_jwt import holder_of
from tests.gateway.fake_queue import FakeQueue, FakeRoom, listening
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass, start
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, jwt_by_secret
from tests.support.running.suite import bearer, problem

SEATS = f"/events/{EVENT}/sections/A/seats"
HOLDS = f"/events/{EVENT}/reservations"
OWN_ORIGIN = {"origin": "http://fans"}


@pytest.fixture
async def queue() -> AsyncIterator[FakeQueue]:
    async with listening() as fake:
        yield fake


@pytest.fixture
async def inventory(settings: Settings, queue: FakeQueue) -> AsyncIterator[Inventory]:
    users = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    with_users = Settings(**(settings.model_dump() | users | {"queue_url": queue.url}))
    async for running in start(with_users):
        assert (await running.put(event_file())).status_code == 200
        await running.until_ready()
        yield running


def token(join_seq: int = 1, *, event_id: str = EVENT, epoch: int = 1, keys: Keyring | None = None) -> str:
    place = QueueToken(event_id, epoch, 0, join_seq, f"holder-{join_seq}", int(time.time()))
    return QueueTokens(keys or development_keys("queue-token")).sign(place)


def open_line(queue: FakeQueue, *users: str, **fields: Any) -> FakeRoom:
    holders = ["holder-1", "holder-2", *(holder_of(development_keys("holder"), user) for user in users)]
    return queue.open(EVENT, **{"holders": holders, "head_seq": len(holders), **fields})


def returned_pass(answer: httpx.Response) -> str:
    """The pass of the header, after the checks that the cookie has it too and the checkout key belongs to it."""
    token = answer.headers["onsale-pass"]
    admission = PassReader(development_keys("pass").public()).read(token, now_s=now_s())
    assert answer.headers["onsale-checkout-key"] == checkout_key(development_keys("checkout"), admission.jti)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"onsale_pass_{EVENT}={token};")
    assert "HttpOnly" in cookie
    return token


async def test_the_queue_token_of_a_called_fan_gives_access_to_the_seats(
    inventory: Inventory, queue: FakeQueue
) -> None:
    open_line(queue)
    seats = await inventory.fans.get(SEATS, headers=bearer(token()))
    assert (seats.status_code, seats.json()["total_seats"]) == (200, 15)
    held = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert held.status_code == 201
    assert returned_pass(seats) == returned_pass(held)
    by_pass = await inventory.read_as(held.headers["onsale-pass"], held.json()["reservation_id"])
    assert by_pass.status_code == 200
    assert "onsale-pass" not in by_pass.headers


async def test_the_jwt_of_a_called_user_gives_access_to_the_seats(inventory: Inventory, queue: FakeQueue) -> None:
    open_line(queue, "ada")
    held = await inventory.reserve(token=jwt_by_secret("ada"), seats=["A-1-1"])
    assert held.status_code == 201
    returned_pass(held)
    read = await inventory.read_as(jwt_by_secret("ada"), held.json()["reservation_id"])
    assert read.json()["seats"] == ["A-1-1"]
    by_another = await inventory.read_as(jwt_by_secret("bob"), held.json()["reservation_id"])
    assert problem(by_another) == (404, "unknown-reservation")


async def test_a_refusal_after_the_claim_still_returns_the_pass(inventory: Inventory, queue: FakeQueue) -> None:
    """Otherwise the fan would have used the call and hold nothing."""
    open_line(queue)
    assert (await inventory.reserve("another", seats=["A-1-1"])).status_code == 201
    refused = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert problem(refused) == (409, "seats-taken")
    returned_pass(refused)
    unreadable = await inventory.fans.post(HOLDS, content=b"{", headers=bearer(token(2)))
    assert problem(unreadable) == (400, "malformed-request")
    returned_pass(unreadable)


async def test_a_waiting_fan_is_refused_with_one_queue_request_a_second(inventory: Inventory, queue: FakeQueue) -> None:
    room = open_line(queue, head_seq=0)
    for _ in range(10):
        answer = await inventory.fans.get(SEATS, headers=bearer(token()))
        assert problem(answer) == (403, "not-admitted")
        assert int(answer.headers["retry-after"]) >= 1
    assert queue.calls["/claims"] == 1
    room.head_seq = 1
    cache = inventory.state.authenticator.pass_claimer._cache
    cache.expire(cache.timer() + auth.NOT_ADMITTED_CACHE_S)
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200


async def test_twenty_concurrent_requests_make_one_claim(inventory: Inventory, queue: FakeQueue) -> None:
    open_line(queue)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(token())) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({returned_pass(answer) for answer in answers}) == 1
    claims = [place for request in queue.received(PlacesQuestion) for place in request.places]
    assert 1 <= len(claims) <= 2, "one batch more for the requests that came during the first"
    calls = queue.calls["/claims"]
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200
    assert queue.calls["/claims"] == calls, "the claim is cached"


async def test_claims_of_many_users_are_sent_in_batches(inventory: Inventory, queue: FakeQueue) -> None:
    users = [f"user-{n}" for n in range(40)]
    open_line(queue, *users)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(jwt_by_secret(user))) for user in users))
    assert {answer.status_code for answer in answers} == {200}
    assert len(queue.received(HoldersQuestion)) + queue.calls["/claims"] <= 8


async def test_a_request_with_a_pass_sends_no_queue_request(inventory: Inventory, queue: FakeQueue) -> None:
    open_line(queue)
    answer = await inventory.fans.get(SEATS, headers=bearer(make_pass("holder-1")))
    assert answer.status_code == 200
    assert "onsale-pass" not in answer.headers
    assert not queue.requests


async def test_invalid_credentials_give_no_access(inventory: Inventory, queue: FakeQueue) -> None:
    room = open_line(queue)
    unknown_keys = Keyring({"dev": b"x" * 32})
    for credential, refusal in (
        (token(event_id="another"), (403, "wrong-event")),
        (token(keys=unknown_keys), (401, "bad-credential")),
        (token(epoch=7), (410, "stale-epoch")),
        (make_pass("fan", event_id="another"), (403, "wrong-event")),
        (make_pass("fan", lasts_s=-60), (401, "bad-credential")),
        (jwt_by_secret("ada", exp=1), (401, "bad-credential")),
        (jwt_by_secret("nobody-here"), (404, "not-in-queue")),
        ("x.y.z", (401, "bad-credential")),
    ):
        assert problem(await inventory.fans.get(SEATS, headers=bearer(credential))) == refusal, credential
        assert problem(await inventory.reserve(token=credential, seats=["A-1-1"])) == refusal, credential
    assert problem(await inventory.fans.get(SEATS)) == (401, "no-credential")
    room.ended[1] = "left"
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (410, "place-expired")
    assert await inventory.counts("A") == (15, 0)


async def test_after_a_reset_a_user_is_found_in_the_new_line(inventory: Inventory, queue: FakeQueue) -> None:
    room = open_line(queue, "ada", head_seq=0)
    jwt = bearer(jwt_by_secret("ada"))
    assert problem(await inventory.fans.get(SEATS, headers=jwt)) == (403, "not-admitted")
    inventory.state.authenticator.pass_claimer._cache.clear()
    room.epoch, room.head_seq = 2, 3
    assert (await inventory.fans.get(SEATS, headers=jwt)).status_code == 200


async def test_an_unavailable_queue_service_answers_503(inventory: Inventory, queue: FakeQueue) -> None:
    open_line(queue)
    queue.fail = [Unavailable()] * 9
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (503, "unavailable")


async def test_the_queue_cookie_is_accepted_from_our_own_pages_only(inventory: Inventory, queue: FakeQueue) -> None:
    open_line(queue)
    cookies = {"cookie": f"onsale_pass_{EVENT}={make_pass('holder-1', lasts_s=-60)}; onsale_queue_{EVENT}={token()}"}
    seats = await inventory.fans.get(SEATS, headers=cookies)
    assert seats.status_code == 200, "the pass has expired, but the place is valid"
    own = await inventory.fans.post(HOLDS, json={"seats": ["A-1-1"]}, headers=cookies | OWN_ORIGIN)
    assert own.status_code == 201
    elsewhere = cookies | {"origin": "http://elsewhere"}
    foreign = await inventory.fans.post(HOLDS, json={"seats": ["A-1-2"]}, headers=elsewhere)
    assert problem(foreign) == (403, "foreign-origin")
