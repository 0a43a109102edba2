"""From a reservation to a confirmed order, once, and what the fan can read afterwards."""

import uuid

from shared.contracts.events import Event
from shared.contracts.frames import OrderFrame, order_channel
from shared.messaging.log import START
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.security.credentials import order_cookie
from shared.security.order_tokens import read_order_token, sign_order_token
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, pass_of
from tests.support.wait import wait_until


async def test_an_order_is_charged_and_confirmed_in_the_background(shop):
    reservation = shop.holds.hold()
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code == 202
    told = answer.json()
    reference = told["reference"]
    assert answer.headers["location"] == told["poll_url"] == f"/orders/{reference}"
    assert told["updates_url"] == f"/orders/{reference}/updates"
    assert 0 < told["expires_in_seconds"] <= 60
    await shop.settled(reference, "confirmed")
    assert shop.holds.reservations[reservation].status == "confirmed"
    [charge] = await shop.charges(reference)
    assert (charge["amount_minor"], charge["idempotency_key"]) == (6800, f"{reference}:1")
    seen = await shop.see(reference)
    ticket = {
        "section_id": "GA1",
        "seat_id": None,
        "quantity": 1,
        "returned": 0,
        "unit_price_minor": 6800,
        "paid_minor": 6800,
    }
    assert (seen["lines"], seen["extras"]) == ([ticket], [])
    assert (seen["attempt"]["status"], seen["total_minor"], seen["currency"]) == ("succeeded", 6800, "EUR")
    assert await shop.audit() == {}


async def test_the_order_token_opens_the_order_for_good(shop):
    answer = await shop.post(shop.body(shop.holds.hold()))
    token, reference = answer.json()["order_token"], answer.json()["reference"]
    assert read_order_token(shop.settings.order_token_keys, token) == reference
    cookie = {order_cookie(reference): token}
    assert answer.cookies[order_cookie(reference)] == token
    for way in ({"headers": {"authorization": f"Bearer {token}"}}, {"headers": {"cookie": _header(cookie)}}):
        shop.http.cookies.clear()
        assert (await shop.http.get(f"/orders/{reference}", **way)).status_code == 200
    listed = await shop.http.get("/orders", headers={"authorization": f"Bearer {token}"})
    assert [order["reference"] for order in listed.json()["orders"]] == [reference]


async def test_a_fan_lists_their_own_orders_newest_first(shop):
    mine = [await shop.order() for _ in range(3)]
    await shop.post(shop.body(shop.holds.hold("somebody")), holder="somebody")
    headers = {"authorization": f"Bearer {pass_of()}"}
    first = (await shop.http.get("/orders?page_size=2", headers=headers)).json()
    assert [order["reference"] for order in first["orders"]] == [mine[2], mine[1]]
    second = (await shop.http.get("/orders?page_size=2&page=2", headers=headers)).json()
    assert [order["reference"] for order in second["orders"]] == [mine[0]]


async def test_a_cookie_from_our_own_page_is_enough_and_the_pass_may_have_expired(shop):
    reservation = shop.holds.hold()
    cookies = {f"onsale_pass_{EVENT}": pass_of(expires_in_s=-300), "onsale_pass_other": "stale"}
    headers = {"cookie": _header(cookies), "idempotency-key": "k", "origin": "http://shop"}
    answer = await shop.http.post("/orders", json=shop.body(reservation), headers=headers)
    assert answer.status_code == 202, answer.text
    foreign = await shop.http.post("/orders", json=shop.body(reservation), headers={**headers, "origin": "http://evil"})
    assert foreign.json()["type"] == "/problems/foreign-origin"


async def test_a_pass_that_has_expired_opens_no_order_and_the_orders_own_token_does(shop):
    reference = await shop.order()
    token = sign_order_token(shop.settings.order_token_keys, reference)
    shop.http.cookies.clear()
    for expired in (-60, -7200):
        for how in (
            {"authorization": f"Bearer {pass_of(expires_in_s=expired)}"},
            {"cookie": f"onsale_pass_{EVENT}={pass_of(expires_in_s=expired)}"},
        ):
            for path in ("/orders", *(f"/orders/{reference}{more}" for more in ("", "/tickets", "/tickets.pdf"))):
                refused = await shop.http.get(path, headers=how)
                assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential"), path
    for own in ({"authorization": f"Bearer {token}"}, {"cookie": f"{order_cookie(reference)}={token}"}):
        assert (await shop.http.get(f"/orders/{reference}", headers=own)).status_code == 200


async def test_who_made_a_hold_orders_it_a_while_after_the_session_and_not_for_ever(shop):
    for expired, status in ((-60, 202), (-3500, 202), (-3700, 401)):
        body = shop.body(shop.holds.hold())
        headers = {"authorization": f"Bearer {pass_of(expires_in_s=expired)}", "idempotency-key": uuid.uuid4().hex}
        assert (await shop.http.post("/orders", json=body, headers=headers)).status_code == status, expired


async def test_the_suite_is_told_of_a_confirmed_order(shop, redis):
    reference = await shop.order()
    log, start = RedisStreams(redis, length_max=1000), {log_stream(EVENT): START}
    told: list[Event] = []

    async def confirmed() -> bool:
        entries = await log.read(start, count=100, wait_s=0)
        told[:] = [Event.model_validate_json(entry.body) for entry in entries]
        return [event.type for event in told] == ["order.created", "order.confirmed", "order.fulfilled"]

    await wait_until(confirmed)
    after = told[1].after
    assert after is not None
    assert {key: after[key] for key in ("reference", "holder", "lane", "join_seq", "event_id", "status")} == {
        "reference": reference, "holder": "fan", "lane": 0, "join_seq": 7, "event_id": EVENT, "status": "confirmed",
    }  # fmt: skip
    assert told[1].version > told[0].version


async def test_the_orders_page_is_shown_every_step(shop, redis):
    reservation = shop.holds.hold()
    async with redis.pubsub() as listener:
        await listener.psubscribe(order_channel("*"))
        reference = await shop.order_of(reservation)
        shown: list[OrderFrame] = []

        async def heard_of_the_end() -> bool:
            message = await listener.get_message(ignore_subscribe_messages=True, timeout=0.1)
            if message:
                shown.append(OrderFrame.model_validate_json(message["data"]))
            return bool(shown) and shown[-1].status == "confirmed"

        await wait_until(heard_of_the_end)
    assert [frame.version for frame in shown] == sorted(frame.version for frame in shown)
    seen = await shop.see(reference)
    assert shown[-1].body == {**seen, "expires_in_seconds": shown[-1].body["expires_in_seconds"]}


async def test_a_free_order_is_confirmed_without_the_provider(shop):
    reservation = shop.holds.hold(total_minor=0)
    answer = await shop.post(shop.body(reservation, total_minor=0))
    reference = answer.json()["reference"]
    await wait_until(lambda: _has_status(shop, reference, "confirmed"))
    assert await shop.charges() == []
    assert await shop.audit() == {}


async def test_a_hosted_page_is_offered_until_the_fan_has_paid_there(shop):
    reference = await shop.order(method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: _checkout_url(shop, reference))
    url = await _checkout_url(shop, reference)
    answer = await shop.sandbox.post(url, data={"choice": "pay"})
    assert answer.status_code == 303
    await shop.settled(reference, "confirmed")
    assert await _checkout_url(shop, reference) is None


async def test_an_operator_gives_the_money_back_once(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    asked = {"json": {"reason": "show moved"}, "headers": {"authorization": f"Bearer {ADMIN_SECRET}"}}
    answer = await shop.http.post(f"/admin/orders/{reference}/refund", **asked)
    assert answer.status_code == 202, answer.text
    await shop.settled(reference, "refunded")
    again = await shop.http.post(f"/admin/orders/{reference}/refund", **asked)
    assert again.json()["type"] == "/problems/refund-refused"
    assert await shop.audit() == {}


def _header(cookies):
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


async def _has_status(shop, reference, status):
    return await shop.status(reference) == status


async def _checkout_url(shop, reference):
    return (await shop.see(reference))["attempt"]["checkout_url"]
