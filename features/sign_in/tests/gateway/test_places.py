"""Signed-in fans: each user has one place, which the gateway finds by their JWT."""

import asyncio

import httpx
import pytest
from cachetools import TTLCache
from fastapi import FastAPI
from pydantic import SecretStr

from features.sign_in import provider_keys
from features.sign_in.users import CACHE_TTL_S, UserJwtReader, UserPlaces, holder_of
from services.gateway.settings import Settings
from shared.contracts.queue import HoldersQuestion, JoinBatch, JoinRequest
from shared.errors.problems import NotInQueue
from tests.gateway.conftest import gateway_client
from tests.support.providers.identity_provider import (
    AUDIENCE,
    ISSUER,
    SECRET,
    identity_provider,
    jwt_by_key,
    jwt_by_secret,
    public_jwk,
)
from tests.support.running.services import QueueService
from tests.support.running.suite import bearer, problem
from tests.support.wait import wait_until

PATH = "/events/show/queue"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With an identity provider."""
    users = {"user_jwt_secret": SecretStr(SECRET), "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    return settings.model_copy(update=users)


def joins(queue: QueueService) -> list[JoinRequest]:
    return [join for batch in queue.received("/joins", JoinBatch) for join in batch.joins]


async def test_a_user_who_joins_twenty_times_at_once_on_two_devices_has_one_place(queue, browser, settings) -> None:
    await queue.open()
    phone, laptop = browser(), browser()
    ada, again = bearer(jwt_by_secret("ada")), bearer(jwt_by_secret("ada", aud=[AUDIENCE, "other"]))
    joining = [client.post(PATH, headers=headers) for client, headers in [(phone, ada), (laptop, again)] * 10]
    answers = await asyncio.gather(*joining)
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert {(answer.json()["join_seq"], answer.json()["queue_token"]) for answer in answers} == {(1, None)}
    holder = holder_of(settings.holder_keys, "ada")
    assert {(join.holder, join.user_id, join.may_be_known) for join in joins(queue)} == {(holder, "ada", True)}
    assert len(await queue.holders()) == 1
    other = await laptop.post(PATH, headers=bearer(jwt_by_secret("bob")))
    assert (other.status_code, other.json()["join_seq"]) == (201, 2)


async def test_a_join_by_jwt_sets_a_cookie_that_is_enough_afterwards(queue, browser) -> None:
    await queue.open()
    fan = browser()
    await fan.post(PATH, headers=bearer(jwt_by_secret("ada")))
    assert (await fan.get(f"{PATH}/status")).json()["join_seq"] == 1
    assert (await fan.post(PATH)).json()["join_seq"] == 1


async def test_a_user_waits_claims_a_pass_and_leaves_by_jwt_alone(queue, browser, publish_frame) -> None:
    await queue.open()
    ada, other_session = bearer(jwt_by_secret("ada")), browser()
    await browser().post(PATH, headers=ada)
    assert (await other_session.get(f"{PATH}/status", headers=ada)).json()["status"] == "waiting"
    assert problem(await other_session.post(f"{PATH}/pass", headers=ada)) == (409, "not-admitted")
    await publish_frame(await queue.call())
    assert (await other_session.get(f"{PATH}/status", headers=ada)).json()["status"] == "ready"
    admitted = await other_session.post(f"{PATH}/pass", headers=ada)
    assert admitted.json()["status"] == "admitted"
    assert admitted.json()["checkout_key"]
    assert (await other_session.delete(PATH, headers=ada)).status_code == 204
    assert await queue.ended() == {1: "left"}


async def test_places_of_users_are_looked_up_once_and_in_shared_requests(queue, state, fan) -> None:
    """The users joined at another process, so this one has to look up their places."""
    await queue.open()
    names = [f"user-{n}" for n in range(50)]
    holders = [holder_of(state.settings.holder_keys, name) for name in names]
    await queue.join(*holders)
    for _ in range(3):
        polls = (fan.get(f"{PATH}/status", headers=bearer(jwt_by_secret(name))) for name in names)
        answers = await asyncio.gather(*polls)
        assert [answer.json()["join_seq"] for answer in answers] == list(range(1, 51))
    assert len(queue.received("/places", HoldersQuestion)) <= 3
    assert {holder for question in queue.received("/places", HoldersQuestion) for holder in question.holders} == set(
        holders
    )


async def test_a_user_who_never_joined_has_no_place(queue, fan) -> None:
    await queue.open()
    for _ in range(5):
        assert problem(await fan.get(f"{PATH}/status", headers=bearer(jwt_by_secret("ada")))) == (404, "not-in-queue")
    assert (await fan.post(PATH, headers=bearer(jwt_by_secret("ada")))).status_code == 201
    assert (await fan.get(f"{PATH}/status", headers=bearer(jwt_by_secret("ada")))).json()["join_seq"] == 1


@pytest.fixture
def user_places(app: FastAPI) -> UserPlaces:
    found: UserPlaces = app.state.parts[UserJwtReader]._places
    return found


async def test_a_user_who_joins_at_one_process_has_a_place_at_another_at_once(queue, state, fan) -> None:
    await queue.open()
    other = UserPlaces(state.queue, "other", cache_entries_max=10)
    ada = holder_of(state.settings.holder_keys, "ada")
    with pytest.raises(NotInQueue):
        await other.place("show", ada)
    await fan.post(PATH, headers=bearer(jwt_by_secret("ada")))
    assert (await other.place("show", ada)).join_seq == 1
    await other.close()


async def test_after_a_reset_a_users_old_place_is_forgotten(queue, fan, publish_frame) -> None:
    await queue.open()
    await fan.post(PATH, headers=bearer(jwt_by_secret("ada")))
    await publish_frame(await queue.reset())
    assert problem(await fan.get(f"{PATH}/status", headers=bearer(jwt_by_secret("ada")))) == (404, "not-in-queue")
    assert (await fan.post(PATH, headers=bearer(jwt_by_secret("ada")))).json()["epoch"] == 2


async def test_the_cache_of_user_places_expires_and_is_bounded(queue, state, user_places) -> None:
    await queue.open()
    user_places._cache = TTLCache(3, CACHE_TTL_S)
    holders = [holder_of(state.settings.holder_keys, f"user-{n}") for n in range(8)]
    await queue.join(*holders)
    for holder in holders:
        await user_places.place("show", holder)
    assert len(user_places._cache) == 3
    calls_before = len(queue.received("/places", HoldersQuestion))
    await user_places.place("show", holders[-1])
    assert len(queue.received("/places", HoldersQuestion)) == calls_before
    cached = user_places._cache
    cached.expire(cached.timer() + CACHE_TTL_S)
    await user_places.place("show", holders[-1])
    assert len(queue.received("/places", HoldersQuestion)) == calls_before + 1


async def test_a_room_can_be_switched_to_signed_in_fans_only_and_back_during_a_sale(
    queue, browser, publish_frame
) -> None:
    await queue.open()
    early = browser()
    assert (await early.post(PATH)).status_code == 201
    await publish_frame(await queue.configure(entry={"signed_in_only": True}))
    late = await browser().post(PATH)
    assert problem(late) == (401, "sign-in-needed")
    keyed = await browser().post(PATH, headers={"idempotency-key": "x" * 30})
    assert problem(keyed) == (401, "sign-in-needed")
    assert (await early.post(PATH)).json()["join_seq"] == 1, "a fan with a place keeps it"
    assert (await early.get(f"{PATH}/status")).status_code == 200
    assert (await browser().post(PATH, headers=bearer(jwt_by_secret("ada")))).status_code == 201
    await publish_frame(await queue.configure(entry={"signed_in_only": False}))
    assert (await browser().post(PATH)).status_code == 201


async def test_joins_without_a_jwt_to_a_signed_in_room_send_no_request(queue, browser) -> None:
    await queue.open(entry={"signed_in_only": True})
    calls_before = queue.calls["/joins"]
    answers = await asyncio.gather(*(browser().post(PATH) for _ in range(10)))
    assert {answer.status_code for answer in answers} == {401}
    assert queue.calls["/joins"] == calls_before


@pytest.mark.parametrize(
    ("method", "path"), [("post", PATH), ("get", f"{PATH}/status"), ("post", f"{PATH}/pass"), ("delete", PATH)]
)
async def test_a_bad_jwt_is_refused_and_joins_nothing(queue, fan: httpx.AsyncClient, method: str, path: str) -> None:
    await queue.open()
    for text in (jwt_by_secret(exp=1), jwt_by_secret(aud="other"), jwt_by_secret(secret="x" * 40), "x.y.z", "x" * 9000):
        answer = await fan.request(method, path, headers=bearer(text))
        assert problem(answer) == (401, "bad-credential")
    assert not joins(queue)


async def test_while_the_queue_is_unavailable_the_answer_is_503(queue, fan) -> None:
    await queue.open()
    queue.away = True
    answer = await fan.get(f"{PATH}/status", headers=bearer(jwt_by_secret("ada")))
    assert problem(answer) == (503, "unavailable")


async def test_a_fan_keeps_their_place_while_keys_rotate_and_the_provider_fails(
    queue: QueueService, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "REFETCH_S", 0.05)
    await queue.open()
    async with identity_provider() as provider:
        by_jwks = settings.model_copy(update={"user_jwt_secret": None, "user_jwt_jwks_url": provider.url})
        async with gateway_client(by_jwks) as fan:
            old, new = bearer(jwt_by_key("ada", kid="k1")), bearer(jwt_by_key("ada", kid="k2"))
            assert (await fan.post(PATH, headers=old)).json()["join_seq"] == 1
            provider.published_keys.append(public_jwk("EdDSA", "k2"))

            async def accepts_new_key() -> bool:
                answer = await fan.get(f"{PATH}/status", headers=new)
                return answer.status_code == 200 and answer.json()["join_seq"] == 1

            await wait_until(accepts_new_key)
            provider.fault = "failing"
            unknown = bearer(jwt_by_key("ada", kid="k3"))
            await wait_until(lambda: is_unavailable(fan, unknown))
            for headers in (old, new):
                assert (await fan.post(PATH, headers=headers)).status_code == 200
                assert (await fan.get(f"{PATH}/status", headers=headers)).status_code == 200


async def is_unavailable(fan: httpx.AsyncClient, headers: dict[str, str]) -> bool:
    answer = await fan.get(f"{PATH}/status", headers=headers)
    return answer.status_code == 503 and "retry-after" in answer.headers
