"""A purchase from the reservation to the confirmed order, and how its fan and the event log follow it."""

import uuid

import pytest

from shared.contracts.frames import Event, OrderFrame, order_channel
from shared.messaging.log import START, RedisStreams, log_stream
from shared.security.tokens import order_cookie, read_order_token
from tests.orders.inventory import EVENT
from tests.orders.shop import pass_header, pass_of, reference_of
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def test_an_order_is_charged_and_confirmed_in_the_background(shop):
    reservation = await shop.inventory.hold()
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code == 202
    created = answer.json()
    reference = created["reference"]
    assert answer.headers["location"] == created["poll_url"] == f"/orders/{reference}"
    assert created["updates_url"] == f"/orders/{reference}/updates"
    assert 0 < created["expires_in_seconds"] <= 60
    await shop.wait_until_settled(reference, "confirmed")
    assert await shop.inventory.status(reservation) == "confirmed"
    [charge] = await shop.charges(reference)
    assert (charge["amount_minor"], charge["idempotency_key"]) == (6800, f"{reference}:1")
    order = await shop.view(reference)
    ticket = {
        "section_id": "GA1", "seat_id": None, "quantity": 1, "returned": 0, "unit_price_minor": 6800,
        "paid_minor": 6800,
    }  # fmt: skip
    assert (order["lines"], order["extras"]) == ([ticket], [])
    assert (order["attempt"]["status"], order["total_minor"], order["currency"]) == ("succeeded", 6800, "EUR")
    assert await shop.violated_invariants() == {}


async def test_each_write_of_an_order_wakes_the_relay_of_its_process(shop, woken):
    reference = (await shop.post(shop.body(await shop.inventory.hold()))).json()["reference"]
    assert woken
    await shop.wait_until_settled(reference, "confirmed")
    assert woken.count("orders") >= 2


async def test_the_order_token_opens_the_order_without_a_pass_and_an_expired_pass_does_not(shop):
    answer = await shop.post(shop.body(await shop.inventory.hold()))
    token, reference = answer.json()["order_token"], answer.json()["reference"]
    assert read_order_token(shop.settings.order_token_keys, token) == reference
    assert answer.cookies[order_cookie(reference)] == token
    shop.http.cookies.clear()
    for credential in ({"authorization": f"Bearer {token}"}, {"cookie": f"{order_cookie(reference)}={token}"}):
        assert (await shop.http.get(f"/orders/{reference}", headers=credential)).status_code == 200
    listed = await shop.http.get("/orders", headers={"authorization": f"Bearer {token}"})
    assert [order["reference"] for order in listed.json()["orders"]] == [reference]
    for expired in (-60, -7200):
        in_cookie = {"cookie": f"onsale_pass_{EVENT}={pass_of(expires_in_s=expired)}"}
        for credential in (pass_header(expires_in_s=expired), in_cookie):
            for path in ("/orders", *(f"/orders/{reference}{part}" for part in ("", "/tickets", "/tickets.pdf"))):
                refused = await shop.http.get(path, headers=credential)
                assert problem(refused) == (401, "bad-credential"), path


async def test_a_fan_lists_their_own_orders_newest_first(shop):
    mine = [await shop.order() for _ in range(3)]
    await shop.post(shop.body(await shop.inventory.hold("somebody")), holder="somebody")
    first = (await shop.http.get("/orders?page_size=2", headers=pass_header())).json()
    assert [order["reference"] for order in first["orders"]] == [mine[2], mine[1]]
    second = (await shop.http.get("/orders?page_size=2&page=2", headers=pass_header())).json()
    assert [order["reference"] for order in second["orders"]] == [mine[0]]


async def test_an_expired_pass_in_a_cookie_orders_from_our_own_origin_only(shop):
    reservation = await shop.inventory.hold()
    cookie = f"onsale_pass_{EVENT}={pass_of(expires_in_s=-300)}; onsale_pass_other=invalid"
    headers = {"cookie": cookie, "idempotency-key": "k", "origin": "http://shop"}
    answer = await shop.http.post("/orders", json=shop.body(reservation), headers=headers)
    assert answer.status_code == 202, answer.text
    foreign = await shop.http.post("/orders", json=shop.body(reservation), headers={**headers, "origin": "http://evil"})
    assert foreign.json()["type"] == "/problems/foreign-origin"


async def test_an_expired_pass_orders_a_hold_for_an_hour(shop):
    for expired, status in ((-60, 202), (-3500, 202), (-3700, 401)):
        body = shop.body(await shop.inventory.hold())
        headers = pass_header(expires_in_s=expired) | {"idempotency-key": uuid.uuid4().hex}
        assert (await shop.http.post("/orders", json=body, headers=headers)).status_code == status, expired


@pytest.mark.usefixtures("loops")
async def test_a_confirmed_order_is_in_the_event_log(shop, redis):
    reference = await shop.order()
    log, start = RedisStreams(redis, length_max=1000), {log_stream(EVENT): START}
    events: list[Event] = []

    async def confirmed() -> bool:
        entries = await log.read(start, count=100, wait_s=0)
        events[:] = [Event.model_validate_json(entry.body) for entry in entries]
        return [event.type for event in events] == ["order.created", "order.confirmed"]

    await wait_until(confirmed)
    after = events[1].after
    assert after is not None
    assert {key: after[key] for key in ("reference", "holder", "lane", "join_seq", "event_id", "status")} == {
        "reference": reference, "holder": "fan", "lane": 0, "join_seq": 7, "event_id": EVENT, "status": "confirmed",
    }  # fmt: skip
    assert events[1].version > events[0].version


async def test_every_step_of_an_order_is_published_as_a_frame(shop, redis):
    reservation = await shop.inventory.hold()
    async with redis.pubsub() as listener:
        reference = reference_of(shop, reservation, "a-key")
        await listener.subscribe(order_channel(reference))
        assert await shop.order_of(reservation, key="a-key") == reference
        frames: list[OrderFrame] = []

        async def confirmed() -> bool:
            message = await listener.get_message(ignore_subscribe_messages=True, timeout=0.1)
            if message:
                frames.append(OrderFrame.model_validate_json(message["data"]))
            return bool(frames) and frames[-1].status == "confirmed"

        await wait_until(confirmed)
    assert [frame.version for frame in frames] == sorted(frame.version for frame in frames)
    order = await shop.view(reference)
    assert frames[-1].body == {**order, "expires_in_seconds": frames[-1].body["expires_in_seconds"]}


async def test_whoever_reads_an_order_with_its_pass_gets_a_cookie_that_lasts_longer(shop):
    reference = await shop.order()
    shop.http.cookies.clear()
    by_pass = {"cookie": f"onsale_pass_{EVENT}={pass_of()}"}
    first = await shop.http.get(f"/orders/{reference}", headers=by_pass)
    assert (await shop.http.get(f"/orders/{reference}")).status_code == 200, "by the order's own cookie"
    again = await shop.http.get(f"/orders/{reference}")
    assert order_cookie(reference) in first.cookies
    assert "set-cookie" not in again.headers
    shop.http.cookies.clear()
    stranger = await shop.http.get(f"/orders/{reference}", headers=pass_header("stranger"))
    assert (stranger.status_code, "set-cookie" in stranger.headers) == (404, False)
