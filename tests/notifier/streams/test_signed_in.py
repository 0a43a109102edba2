"""A signed-in fan listens by JWT; the stream is a heartbeat of their place, if they have one."""

import pytest

from shared.security.user_jwt import holder_of
from tests.notifier.conftest import EVENT, REFERENCE, FakeServices, Notifier, Start, order
from tests.notifier.streams.test_who_may_listen import refusal
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, by_secret
from tests.support.wait import wait_until


@pytest.fixture
async def notifier(start: Start) -> Notifier:
    return await start(user_jwt_secret=SECRET, user_jwt_issuer=ISSUER, user_jwt_audience=AUDIENCE)


async def test_listening_is_a_sign_of_life_of_the_users_place(notifier: Notifier, services: FakeServices):
    services.places[holder_of(notifier.state.settings.holder_keys, "ada")] = 7
    client = await notifier.listen(token=by_secret("ada"))
    await wait_until(lambda: client.last("sections"))
    await wait_until(lambda: services.reports and services.reports[-1].events)
    (event,) = services.reports[-1].events
    assert (event.event_id, event.lanes) == (EVENT, {0: [7]})


async def test_a_users_jwt_may_come_in_a_cookie_of_the_sellers(start: Start):
    settings = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    path, cookie = f"/events/{EVENT}/sections/updates", f"shop_session={by_secret('ada')}"
    notifier = await start(**settings, user_jwt_cookie="shop_session")
    client = await notifier.open(path, cookie=cookie)
    await wait_until(lambda: client.last("sections"))
    assert await refusal(await notifier.open(path, cookie=cookie[:-4] + "AAAA")) == (401, "bad-credential")
    without = await start(**settings)
    assert await refusal(await without.open(path, cookie=cookie)) == (401, "no-credential")


async def test_a_user_without_a_place_may_listen_all_the_same(notifier: Notifier):
    client = await notifier.listen(token=by_secret("bob"))
    await wait_until(lambda: client.last("sections"))


async def test_a_user_has_so_many_streams_on_however_many_devices(start: Start):
    users = {"user_jwt_secret": SECRET, "user_jwt_issuer": ISSUER, "user_jwt_audience": AUDIENCE}
    notifier = await start(**users, streams_per_identity=2)
    clients = [await notifier.listen(token=by_secret("ada", device=device)) for device in range(2)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    third = await notifier.listen(token=by_secret("ada", device=3))
    await wait_until(lambda: third.complete)
    other = await notifier.listen(token=by_secret("bob"))
    await wait_until(lambda: other.last("sections"))


async def test_a_bad_jwt_gets_no_stream(notifier: Notifier, services: FakeServices):
    for text in (by_secret(exp=1), by_secret(aud="other"), by_secret(secret="y" * 40)):
        assert await refusal(await notifier.listen(token=text)) == (401, "bad-credential")
    assert services.calls == []


async def test_a_user_gets_their_own_order_and_no_other(notifier: Notifier, services: FakeServices):
    ada = holder_of(notifier.state.settings.holder_keys, "ada")
    services.orders = {REFERENCE: order(10, "pending", holder=ada)}
    client = await notifier.listen_order(token=by_secret("ada"))
    await wait_until(lambda: client.last("order"))
    assert "holder" not in client.last("order")
    assert await refusal(await notifier.listen_order(token=by_secret("bob"))) == (404, "not-found")
    await notifier.show(order(11, "confirmed", holder=ada))
    await wait_until(lambda: client.last("order")["status"] == "confirmed")
