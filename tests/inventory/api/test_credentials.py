"""Credentials of fans: a pass, or the queue token or user JWT of a called fan, which inventory claims for a pass."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from redis.asyncio import Redis
from starlette.types import ASGIApp

from features.sign_in.users import holder_of
from services.inventory import auth
from services.inventory.settings import Settings
from shared import rpc
from shared.contracts.inventory import InventoryClient
from shared.contracts.queue import HoldersQuestion, PlacesQuestion
from shared.rpc import ServiceClient
from shared.runtime.clock import now_s
from shared.security.tokens import Keyring, PassReader, QueueToken, QueueTokens, checkout_key, development_keys
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass, start
from tests.support.engines.database import Database
from tests.support.neighbours import Connections
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, jwt_by_secret
from tests.support.running.services import QueueService, queue_service
from tests.support.running.suite import bearer, problem

SEATS = f"/events/{EVENT}/sections/A/seats"
HOLDS = f"/events/{EVENT}/reservations"
OWN_ORIGIN = {"origin": "http://fans"}


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> dict[str, ASGIApp]:
    """The two services of these tests, which call each other."""
    apps: dict[str, ASGIApp] = {}
    monkeypatch.setattr(rpc, "client", Connections(apps))
    return apps


@pytest.fixture
async def queue(database: Database, redis: Redis, apps: dict[str, ASGIApp]) -> AsyncIterator[QueueService]:
    inventory = ServiceClient(Connections(apps), "http://inventory", development_keys("service"), name="inventory")
    async with queue_service(database, redis, InventoryClient(inventory)) as queue:
        apps["queue"] = queue
        yield queue


@pytest.fixture
async def inventory(settings: Settings, queue: QueueService, apps: dict[str, ASGIApp]) -> AsyncIterator[Inventory]:
    users = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    with_users = type(settings)(**(settings.model_dump() | users | {"queue_url": "http://queue"}))
    async for running in start(with_users):
        transport = running.internal._transport
        assert isinstance(transport, httpx.ASGITransport)
        apps["inventory"] = transport.app
        assert (await running.put(event_file())).status_code == 200
        await running.until_ready()
        yield running


def token(join_seq: int = 1, *, event_id: str = EVENT, epoch: int = 1, keys: Keyring | None = None) -> str:
    place = QueueToken(event_id, epoch, 0, join_seq, f"holder-{join_seq}", int(time.time()))
    return QueueTokens(keys or development_keys("queue-token")).sign(place)


async def open_line(queue: QueueService, *users: str, called: bool = True) -> None:
    """Two holders and these users are in the line."""
    holders = ["holder-1", "holder-2", *(holder_of(development_keys("holder"), user) for user in users)]
    await queue.open(EVENT)
    await queue.join(*holders, event_id=EVENT)
    if called:
        await queue.call(len(holders), EVENT)


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
    inventory: Inventory, queue: QueueService
) -> None:
    await open_line(queue)
    seats = await inventory.fans.get(SEATS, headers=bearer(token()))
    assert (seats.status_code, seats.json()["total_seats"]) == (200, 15)
    held = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert held.status_code == 201
    assert returned_pass(seats) == returned_pass(held)
    by_pass = await inventory.read_as(held.headers["onsale-pass"], held.json()["reservation_id"])
    assert by_pass.status_code == 200
    assert "onsale-pass" not in by_pass.headers


async def test_the_jwt_of_a_called_user_gives_access_to_the_seats(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue, "ada")
    held = await inventory.reserve(token=jwt_by_secret("ada"), seats=["A-1-1"])
    assert held.status_code == 201
    returned_pass(held)
    read = await inventory.read_as(jwt_by_secret("ada"), held.json()["reservation_id"])
    assert read.json()["seats"] == ["A-1-1"]
    by_another = await inventory.read_as(jwt_by_secret("bob"), held.json()["reservation_id"])
    assert problem(by_another) == (404, "unknown-reservation")


async def test_a_refusal_after_the_claim_still_returns_the_pass(inventory: Inventory, queue: QueueService) -> None:
    """Otherwise the fan would have used the call and hold nothing."""
    await open_line(queue)
    assert (await inventory.reserve("another", seats=["A-1-1"])).status_code == 201
    refused = await inventory.reserve(token=token(), seats=["A-1-1"])
    assert problem(refused) == (409, "seats-taken")
    returned_pass(refused)
    unreadable = await inventory.fans.post(HOLDS, content=b"{", headers=bearer(token(2)))
    assert problem(unreadable) == (400, "malformed-request")
    returned_pass(unreadable)


async def test_a_waiting_fan_is_refused_with_one_queue_request_a_second(
    inventory: Inventory, queue: QueueService
) -> None:
    await open_line(queue, called=False)
    for _ in range(10):
        answer = await inventory.fans.get(SEATS, headers=bearer(token()))
        assert problem(answer) == (403, "not-admitted")
        assert int(answer.headers["retry-after"]) >= 1
    assert queue.calls["/claims"] == 1
    await queue.call(1, EVENT)
    cache = inventory.state.authenticator.pass_claimer._cache
    cache.expire(cache.timer() + auth.NOT_ADMITTED_CACHE_S)
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200


async def test_twenty_concurrent_requests_make_one_claim(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(token())) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({returned_pass(answer) for answer in answers}) == 1
    claims = [place for request in queue.received("/claims", PlacesQuestion) for place in request.places]
    assert 1 <= len(claims) <= 2, "one batch more for the requests that came during the first"
    calls = queue.calls["/claims"]
    assert (await inventory.fans.get(SEATS, headers=bearer(token()))).status_code == 200
    assert queue.calls["/claims"] == calls, "the claim is cached"


async def test_claims_of_many_users_are_sent_in_batches(inventory: Inventory, queue: QueueService) -> None:
    users = [f"user-{n}" for n in range(40)]
    await open_line(queue, *users)
    answers = await asyncio.gather(*(inventory.fans.get(SEATS, headers=bearer(jwt_by_secret(user))) for user in users))
    assert {answer.status_code for answer in answers} == {200}
    assert len(queue.received("/places", HoldersQuestion)) + queue.calls["/claims"] <= 8


async def test_a_request_with_a_pass_sends_no_queue_request(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue)
    answer = await inventory.fans.get(SEATS, headers=bearer(make_pass("holder-1")))
    assert answer.status_code == 200
    assert "onsale-pass" not in answer.headers
    assert not queue.requests


async def test_invalid_credentials_give_no_access(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue)
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
    await queue.end(1, "left", EVENT)
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (410, "place-expired")
    assert await inventory.counts("A") == (15, 0)


async def test_after_a_reset_a_user_is_found_in_the_new_line(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue, "ada", called=False)
    jwt = bearer(jwt_by_secret("ada"))
    assert problem(await inventory.fans.get(SEATS, headers=jwt)) == (403, "not-admitted")
    inventory.state.authenticator.pass_claimer._cache.clear()
    await queue.reset(EVENT)
    await queue.join(holder_of(development_keys("holder"), "ada"), event_id=EVENT)
    await queue.call(1, EVENT)
    assert (await inventory.fans.get(SEATS, headers=jwt)).status_code == 200


async def test_an_unavailable_queue_service_answers_503(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue)
    queue.away = True
    assert problem(await inventory.fans.get(SEATS, headers=bearer(token()))) == (503, "unavailable")


async def test_the_queue_cookie_is_accepted_from_our_own_pages_only(inventory: Inventory, queue: QueueService) -> None:
    await open_line(queue)
    cookies = {"cookie": f"onsale_pass_{EVENT}={make_pass('holder-1', lasts_s=-60)}; onsale_queue_{EVENT}={token()}"}
    seats = await inventory.fans.get(SEATS, headers=cookies)
    assert seats.status_code == 200, "the pass has expired, but the place is valid"
    own = await inventory.fans.post(HOLDS, json={"seats": ["A-1-1"]}, headers=cookies | OWN_ORIGIN)
    assert own.status_code == 201
    elsewhere = cookies | {"origin": "http://elsewhere"}
    foreign = await inventory.fans.post(HOLDS, json={"seats": ["A-1-2"]}, headers=elsewhere)
    assert problem(foreign) == (403, "foreign-origin")
