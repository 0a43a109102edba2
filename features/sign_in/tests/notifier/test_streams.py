"""A signed-in fan opens streams with their JWT; the stream counts as a heartbeat of their place."""

import pytest

from features.sign_in.users import holder_of
from shared.clients import heartbeats
from shared.contracts.queue import EventHeartbeats, HeartbeatReport, JoinBatch, JoinRequest
from tests.notifier.client import UPDATES
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, order_frame
from tests.notifier.orders import write_order
from tests.notifier.streams.test_event_stream import refusal
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, jwt_by_secret
from tests.support.running.services import Neighbours
from tests.support.wait import wait_until

USERS = ("bob", "ada")
USER_JWT = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}


@pytest.fixture
async def notifier(start: Start) -> Notifier:
    return await start(**USER_JWT)


async def test_an_open_stream_is_a_heartbeat_of_the_users_place(
    start: Start, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heartbeats, "INTERVAL_MAX_S", 0.2)
    notifier = await start(**USER_JWT)
    queue = await neighbours.real_queue.open()
    fans = [JoinRequest(holder=holder_of(notifier.state.settings.holder_keys, name), user_id=name) for name in USERS]
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=fans))
    await notifier.connect(token=jwt_by_secret("ada"))

    def reported() -> list[EventHeartbeats]:
        return neighbours.queue.received("/heartbeats", HeartbeatReport)[-1].events

    await wait_until(lambda: neighbours.queue.calls["/heartbeats"] and reported())
    assert [(event.event_id, event.lanes) for event in reported()] == [(EVENT, {0: [2]})]


async def test_a_users_jwt_is_accepted_from_the_sellers_cookie(start: Start):
    cookie = f"shop_session={jwt_by_secret('ada')}"
    notifier = await start(**USER_JWT, user_jwt_cookie="shop_session")
    client = await notifier.open(UPDATES, cookie=cookie)
    await wait_until(lambda: client.last("sections"))
    assert await refusal(await notifier.open(UPDATES, cookie=cookie[:-4] + "AAAA")) == (401, "bad-credential")
    without_cookie = await start(**USER_JWT)
    assert await refusal(await without_cookie.open(UPDATES, cookie=cookie)) == (401, "no-credential")


async def test_a_user_without_a_place_gets_a_stream(notifier: Notifier):
    await notifier.connect(token=jwt_by_secret("bob"))


async def test_the_streams_of_a_user_are_limited_over_all_devices(start: Start):
    notifier = await start(**USER_JWT, streams_per_identity=2)
    for device in range(2):
        await notifier.connect(token=jwt_by_secret("ada", device=device))
    third = await notifier.listen(token=jwt_by_secret("ada", device=3))
    await wait_until(lambda: third.complete)
    await notifier.connect(token=jwt_by_secret("bob"))


async def test_a_bad_jwt_gets_no_stream(notifier: Notifier, neighbours: Neighbours):
    for text in (jwt_by_secret(exp=1), jwt_by_secret(aud="other"), jwt_by_secret(secret="y" * 40)):
        assert await refusal(await notifier.listen(token=text)) == (401, "bad-credential")
    assert not neighbours.inventory.calls
    assert set(neighbours.queue.calls) <= {"/heartbeats"}


async def test_a_user_gets_their_own_order_and_no_other(notifier: Notifier, neighbours: Neighbours):
    ada = holder_of(notifier.state.settings.holder_keys, "ada")
    await write_order(await neighbours.real_orders.open(), "OFADA12345", holder=ada)
    client = await notifier.connect_order("OFADA12345", token=jwt_by_secret("ada"))
    assert ada not in str(client.last("order"))
    assert await refusal(await notifier.listen_order("OFADA12345", token=jwt_by_secret("bob"))) == (404, "not-found")
    assert [feed.lease_count for feed in notifier.state.feeds._feeds.values()] == [1], "a refused stream keeps no feed"
    await notifier.publish(order_frame(11, "confirmed", "OFADA12345", holder=ada))
    await wait_until(lambda: client.last("order")["status"] == "confirmed")
