"""Signed-in fans: one place each, found by their JWT alone."""

import asyncio
from typing import Any

import httpx
import pytest

from services.gateway.app import create_app
from services.gateway.settings import Settings
from shared.contracts.queue import HoldersQuestion, JoinBatch, JoinRequest
from shared.rpc import user_places
from shared.security.user_jwt import holder_of
from shared.web.app import public
from shared.web.problems import NotInQueue, Unavailable
from tests.gateway.fake_queue import FakeQueue
from tests.support.providers.identity_provider import (
    AUDIENCE,
    ISSUER,
    SECRET,
    by_key,
    by_secret,
    identity_provider,
    public_jwk,
)
from tests.support.running.suite import bearer, problem
from tests.support.wait import wait_until

PATH = "/events/show/queue"


@pytest.fixture
def settings(queue: FakeQueue, redis_url: str) -> Settings:
    return Settings(
        queue_url=queue.url, redis_url=redis_url, user_jwt_secret=SECRET, user_jwt_issuer=ISSUER,
        user_jwt_audience=AUDIENCE,
    )  # fmt: skip


def joins(queue: FakeQueue) -> list[JoinRequest]:
    return [join for batch in queue.received(JoinBatch) for join in batch.joins]


async def test_a_user_on_two_devices_has_one_place(queue, browser, settings) -> None:
    queue.open()
    phone, laptop = browser(), browser()
    first = await phone.post(PATH, headers=bearer(by_secret("ada")))
    again = await laptop.post(PATH, headers=bearer(by_secret("ada", aud=[AUDIENCE, "other"])))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["join_seq"] == again.json()["join_seq"] == 1
    assert first.json()["queue_token"] is None
    holder = holder_of(settings.holder_keys, "ada")
    assert {(join.holder, join.user_id, join.may_be_known) for join in joins(queue)} == {(holder, "ada", True)}
    other = await laptop.post(PATH, headers=bearer(by_secret("bob")))
    assert (other.status_code, other.json()["join_seq"]) == (201, 2)


async def test_a_user_who_joins_twenty_times_at_once_gets_one_place(queue, fan) -> None:
    queue.open()
    answers = await asyncio.gather(*(fan.post(PATH, headers=bearer(by_secret("ada"))) for _ in range(20)))
    assert {answer.json()["join_seq"] for answer in answers} == {1}
    assert [answer.status_code for answer in answers].count(201) == 1
    assert len(queue.rooms["show"].holders) == 1


async def test_the_cookie_is_set_all_the_same_and_is_enough_from_then_on(queue, browser) -> None:
    queue.open()
    fan = browser()
    await fan.post(PATH, headers=bearer(by_secret("ada")))
    assert (await fan.get(f"{PATH}/status")).json()["join_seq"] == 1
    assert (await fan.post(PATH)).json()["join_seq"] == 1


async def test_a_user_waits_is_called_and_leaves_by_jwt_alone(queue, browser, show) -> None:
    room = queue.open()
    ada, elsewhere = bearer(by_secret("ada")), browser()
    await browser().post(PATH, headers=ada)
    assert (await elsewhere.get(f"{PATH}/status", headers=ada)).json()["status"] == "waiting"
    assert problem(await elsewhere.post(f"{PATH}/pass", headers=ada)) == (409, "not-admitted")
    await show(room.change(head_seq=1))
    assert (await elsewhere.get(f"{PATH}/status", headers=ada)).json()["status"] == "ready"
    admitted = await elsewhere.post(f"{PATH}/pass", headers=ada)
    assert admitted.json()["status"] == "admitted"
    assert admitted.json()["checkout_key"]
    assert (await elsewhere.delete(PATH, headers=ada)).status_code == 204
    assert room.ended == {1: "left"}


async def test_a_user_who_polls_costs_one_request_and_crowds_share_it(queue, state, fan) -> None:
    """Another process cached the place: this one has to find it once."""
    open_room = queue.open()
    names = [f"user-{n}" for n in range(50)]
    open_room.holders += [holder_of(state.settings.holder_keys, name) for name in names]
    for _ in range(3):
        polls = (fan.get(f"{PATH}/status", headers=bearer(by_secret(name))) for name in names)
        answers = await asyncio.gather(*polls)
        assert [answer.json()["join_seq"] for answer in answers] == list(range(1, 51))
    assert len(queue.received(HoldersQuestion)) <= 3
    assert {holder for question in queue.received(HoldersQuestion) for holder in question.holders} == set(
        open_room.holders
    )


async def test_a_user_who_never_joined_has_no_place(queue, fan) -> None:
    queue.open()
    for _ in range(5):
        assert problem(await fan.get(f"{PATH}/status", headers=bearer(by_secret("ada")))) == (404, "not-in-queue")
    assert (await fan.post(PATH, headers=bearer(by_secret("ada")))).status_code == 201
    assert (await fan.get(f"{PATH}/status", headers=bearer(by_secret("ada")))).json()["join_seq"] == 1


async def test_a_user_who_joins_at_one_process_has_a_place_at_the_other_at_once(queue, state, fan) -> None:
    queue.open()
    other = user_places.UserPlaces(state.user_places._queue, name="other", waiting_max=10)
    ada = holder_of(state.settings.holder_keys, "ada")
    with pytest.raises(NotInQueue):
        await other.place("show", ada)
    await fan.post(PATH, headers=bearer(by_secret("ada")))
    assert (await other.place("show", ada)).join_seq == 1
    await other.close()


async def test_after_a_reset_a_users_old_place_is_forgotten(queue, fan, show) -> None:
    room = queue.open()
    await fan.post(PATH, headers=bearer(by_secret("ada")))
    room.holders.clear()
    await show(room.change(epoch=2))
    assert problem(await fan.get(f"{PATH}/status", headers=bearer(by_secret("ada")))) == (404, "not-in-queue")
    assert (await fan.post(PATH, headers=bearer(by_secret("ada")))).json()["epoch"] == 2


async def test_what_is_remembered_of_users_ends_and_is_bounded(queue, state, fan) -> None:
    open_room = queue.open()
    state.user_places._cache_entries_max = 3
    holders = [holder_of(state.settings.holder_keys, f"user-{n}") for n in range(8)]
    open_room.holders += holders
    for holder in holders:
        await state.user_places.place("show", holder)
    assert len(state.user_places._cache) == 3
    calls_before = len(queue.received(HoldersQuestion))
    await state.user_places.place("show", holders[-1])
    assert len(queue.received(HoldersQuestion)) == calls_before
    remembered = state.user_places._cache
    for name, (until_s, place) in remembered.items():
        remembered[name] = until_s - user_places.CACHE_TTL_S, place
    await state.user_places.place("show", holders[-1])
    assert len(queue.received(HoldersQuestion)) == calls_before + 1


async def test_a_line_for_signed_in_fans_only_refuses_others_and_can_become_one_live(
    queue, browser, show, redis
) -> None:
    room = queue.open()
    early = browser()
    assert (await early.post(PATH)).status_code == 201
    await show(room.change(signed_in_only=True))
    late = await browser().post(PATH)
    assert problem(late) == (401, "sign-in-needed")
    keyed = await browser().post(PATH, headers={"idempotency-key": "x" * 30})
    assert problem(keyed) == (401, "sign-in-needed")
    assert (await early.post(PATH)).json()["join_seq"] == 1, "who has a place keeps it"
    assert (await early.get(f"{PATH}/status")).status_code == 200
    assert (await browser().post(PATH, headers=bearer(by_secret("ada")))).status_code == 201
    await show(room.change(signed_in_only=False))
    assert (await browser().post(PATH)).status_code == 201


async def test_bots_without_a_token_cost_a_signed_in_line_nothing(queue, browser, show) -> None:
    room = queue.open(signed_in_only=True)
    await show(room.frame())
    calls_before = queue.calls["/joins"]
    answers = await asyncio.gather(*(browser().post(PATH) for _ in range(10)))
    assert {answer.status_code for answer in answers} == {401}
    assert queue.calls["/joins"] == calls_before


@pytest.mark.parametrize(
    "path", [("post", PATH), ("get", f"{PATH}/status"), ("post", f"{PATH}/pass"), ("delete", PATH)]
)
async def test_a_bad_token_is_nobody_and_changes_nothing(queue, fan: httpx.AsyncClient, path: Any) -> None:
    queue.open()
    method, address = path
    for text in (by_secret(exp=1), by_secret(aud="other"), by_secret(secret="x" * 40), "x.y.z", "x" * 9000):
        answer = await fan.request(method, address, headers=bearer(text))
        assert problem(answer) == (401, "bad-credential")
    assert not joins(queue)


async def test_an_unavailable_queue_is_503(queue, fan) -> None:
    queue.open()
    queue.fail = [Unavailable()] * 9
    answer = await fan.get(f"{PATH}/status", headers=bearer(by_secret("ada")))
    assert problem(answer) == (503, "unavailable")


async def test_a_key_is_rotated_and_the_provider_goes_away_while_fans_wait(queue: FakeQueue, redis_url: str) -> None:
    """A fan who waits long gets tokens signed by new keys; the place stays the same."""
    queue.open()
    async with identity_provider() as provider:
        keyed = Settings(
            queue_url=queue.url, redis_url=redis_url, user_jwt_jwks_url=provider.url, user_jwt_issuer=ISSUER,
            user_jwt_audience=AUDIENCE, user_jwt_refetch_s=0.05,
        )  # fmt: skip
        app = create_app(keyed)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://gateway")
        async with app.router.lifespan_context(app), client as fan:
            old, new = bearer(by_key("ada", kid="k1")), bearer(by_key("ada", kid="k2"))
            assert (await fan.post(PATH, headers=old)).json()["join_seq"] == 1
            provider.published_keys.append(public_jwk("EdDSA", "k2"))

            async def line_cached() -> bool:
                answer = await fan.get(f"{PATH}/status", headers=new)
                return answer.status_code == 200 and answer.json()["join_seq"] == 1

            await wait_until(line_cached)
            provider.fault = "failing"
            unknown = bearer(by_key("ada", kid="k3"))
            await wait_until(lambda: is_away(fan, unknown))
            for headers in (old, new):
                assert (await fan.post(PATH, headers=headers)).status_code == 200
                assert (await fan.get(f"{PATH}/status", headers=headers)).status_code == 200


async def is_away(fan: httpx.AsyncClient, headers: dict[str, str]) -> bool:
    answer = await fan.get(f"{PATH}/status", headers=headers)
    return answer.status_code == 503 and "retry-after" in answer.headers
