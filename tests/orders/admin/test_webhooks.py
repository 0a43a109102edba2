"""Outgoing webhooks: a delivery is signed, written with its event, and retried until it is accepted or has failed."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from standardwebhooks.webhooks import Webhook

from services.orders.settings import Settings
from services.orders.webhooks import dispatcher
from services.orders.webhooks.dispatcher import DeliveryResult, retry_delay_s
from shared.concurrency.leased_queue import SOON_S
from tests.orders.inventory import EVENT
from tests.orders.shop import ROOT, VIEWER
from tests.support.providers.receiver import Receiver, webhook_receiver
from tests.support.wait import wait_until

QUICK = {
    "webhook_poll_interval_s": 0.05,
    "webhook_timeout_s": 0.3,
    "webhook_backoff_s": (0.05,) * 9,
}
WEBHOOKS = "/admin/orders/webhooks"


@pytest.fixture
async def receiver(loops):
    async with webhook_receiver() as receiver:
        yield receiver


async def add_endpoint(shop, receiver: Receiver, **fields):
    body = {"url": f"{receiver.url}/onsale?from=us", "reason": "the organiser's CRM", **fields}
    answer = await shop.http.post(WEBHOOKS, json=body, headers=ROOT)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.fixture
def of_created_orders(processes, receiver):
    """Opens a shop with these settings and an endpoint for created orders."""

    async def open_one(**settings):
        shop = await processes.open(**QUICK | settings)
        return shop, await add_endpoint(shop, receiver, kinds=["order.created"])

    return open_one


async def resend(shop, delivery):
    answer = await shop.http.post(f"{WEBHOOKS}/deliveries/{delivery['id']}/resend", json={"reason": "x"}, headers=ROOT)
    assert answer.status_code == 202, answer.text


async def deliveries(shop, endpoint):
    answer = await shop.http.get(f"{WEBHOOKS}/{endpoint['endpoint_id']}/deliveries", headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()["deliveries"]


async def wait_for_deliveries(shop, endpoint, status):
    """Waits until the endpoint has deliveries, and all of them this status; returns them."""

    async def found():
        return {delivery["status"] for delivery in await deliveries(shop, endpoint)} == {status}

    await wait_until(found)
    return await deliveries(shop, endpoint)


async def is_disabled(shop):
    [endpoint] = (await shop.http.get(WEBHOOKS, headers=VIEWER)).json()["endpoints"]
    return endpoint["disabled_at"] is not None


@pytest.mark.parametrize("written", ["0.5,3", " 0.5 , 3 ", "[0.5, 3]"])
def test_pauses_are_a_list_in_brackets_or_without(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_WEBHOOK_BACKOFF_S", written)
    assert Settings().webhook_backoff_s == (0.5, 3)


async def test_an_endpoint_receives_signed_events_of_an_order(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add_endpoint(shop, receiver)
    assert endpoint["secret"].startswith("whsec_")
    reference = await shop.order()
    await wait_until(lambda: sorted(receiver.event_types) == ["order.confirmed", "order.created"])
    messages = [request.verified(endpoint["secret"]) for request in receiver.received]
    orders = {message["type"]: message["data"] for message in messages}
    assert {order["reference"] for order in orders.values()} == {reference}
    assert orders["order.confirmed"]["status"] == "confirmed"
    assert orders["order.created"]["total_minor"] == 6800
    assert "holder" not in orders["order.created"]
    assert orders["order.confirmed"]["version"] > orders["order.created"]["version"]
    await wait_for_deliveries(shop, endpoint, "delivered")
    shown = (await shop.http.get(WEBHOOKS, headers=VIEWER)).json()["endpoints"]
    assert [each["endpoint_id"] for each in shown] == [endpoint["endpoint_id"]]
    assert "whsec_" not in str(shown)


async def test_an_endpoint_receives_only_the_kinds_and_the_event_it_selected(processes, receiver):
    shop = await processes.open(**QUICK)
    await add_endpoint(shop, receiver, kinds=["order.expired", "order.refunded", "order.cancelled"], event_id=EVENT)
    await add_endpoint(shop, receiver, event_id="another")
    sold = await shop.order()
    await shop.wait_until_settled(sold, "confirmed")
    await shop.admin_post(f"{sold}/refund")
    expired = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(expired, "failed"))
    await shop.expire(expired)
    cancelled = await shop.order(method="redirect", return_url="http://shop/back")
    await shop.cancel(cancelled)
    await wait_until(lambda: len(receiver.received) >= 3)
    assert sorted(receiver.event_types) == ["order.cancelled", "order.expired", "order.refunded"]


async def test_a_rolled_back_event_leaves_no_delivery(shop, receiver):
    """Event and delivery are written in one transaction, so a crash leaves both or neither."""
    await shop.run(
        "INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds) "
        "VALUES ('ep_1', 'https://x', 'whsec_', '{order.created}')"
    )
    event = """INSERT INTO orders.outbox_batch (events) VALUES ('[{"id": "1", "event_id": "e", "type": "order.created",
        "occurred_at_ms": 1, "version": 1, "after": {"reference": "AAAA", "status": "pending"}}]')"""
    count = text("SELECT count(*) FROM orders.webhook_delivery")
    async with shop.state.db.connect() as connection:
        await connection.execute(text(event.replace(":", "\\:")))
        assert await connection.scalar(count) == 1
        await connection.rollback()
        assert await connection.scalar(count) == 0


async def test_a_failing_receiver_gets_the_same_message_id_until_it_accepts(of_created_orders, receiver):
    """It has accepted once its status says so: an endless response is not read to its end."""
    shop, endpoint = await of_created_orders(webhook_timeout_s=0.5)
    receiver.faults = ["failing", "moved", "silent", "dripping", "cut", "huge"]
    await shop.order()
    [delivery] = await wait_for_deliveries(shop, endpoint, "delivered")
    assert len(receiver.received) == 6
    assert {request.path for request in receiver.received} == {"/onsale?from=us"}, "a redirect was followed"
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
    for request in receiver.received:
        request.verified(endpoint["secret"])
    assert (delivery["attempts"], delivery["answer_status"], delivery["due_at"]) == (6, 200, None)


async def test_an_endpoint_that_answers_410_is_disabled_until_enabled_again(of_created_orders, receiver):
    shop, endpoint = await of_created_orders()
    receiver.faults = ["gone"]
    await shop.order()
    await wait_until(lambda: is_disabled(shop))
    await shop.order()
    [delivery] = await deliveries(shop, endpoint)
    assert (delivery["status"], delivery["answer_status"]) == ("failed", 410), "the second order made no delivery"
    answer = await shop.http.post(
        f"{WEBHOOKS}/{endpoint['endpoint_id']}/enable", json={"reason": "repaired"}, headers=ROOT
    )
    assert (answer.status_code, answer.json()["disabled_at"]) == (200, None)
    await resend(shop, delivery)
    await wait_for_deliveries(shop, endpoint, "delivered")
    assert len(receiver.received) == 2


async def test_an_endpoint_that_fails_for_days_is_disabled(of_created_orders, receiver):
    shop, _ = await of_created_orders(webhook_disable_after_s=0.2)
    receiver.faults = ["failing"] * 9
    await shop.order()
    await wait_until(lambda: is_disabled(shop))
    assert 1 < len(receiver.received) < 10


async def test_a_delivery_fails_after_the_last_retry_and_can_be_resent(of_created_orders, receiver):
    shop, endpoint = await of_created_orders(webhook_backoff_s=(0.05,))
    receiver.faults = ["failing", "failing"]
    await shop.order()
    [delivery] = await wait_for_deliveries(shop, endpoint, "failed")
    await resend(shop, delivery)
    await wait_for_deliveries(shop, endpoint, "delivered")


async def test_each_endpoint_has_its_own_limit_of_concurrent_deliveries(processes, receiver):
    async with AsyncExitStack() as stack:
        fast = await stack.enter_async_context(webhook_receiver())
        fields = {**QUICK, "webhook_timeout_s": 20.0, "webhook_endpoint_concurrency": 2}
        shops = [await processes.open(**fields), await processes.open(**fields)]
        await add_endpoint(shops[0], receiver, kinds=["order.created"])
        await add_endpoint(shops[0], fast, kinds=["order.created"])
        receiver.faults = ["held"] * 5
        for _ in range(5):
            await shops[0].order()
        await wait_until(lambda: len(fast.received) == 5)
        assert receiver.concurrent == receiver.concurrent_max == 2
        receiver.release.set()
        await wait_until(lambda: len(receiver.received) == 5)
        assert receiver.concurrent_max == 2


async def test_only_one_process_at_a_time_leases_deliveries(of_created_orders):
    """Otherwise deliveries that become due meanwhile would exceed the endpoint's limit."""
    shop, _ = await of_created_orders(webhook_poll_interval_s=60.0, webhook_endpoint_concurrency=1)
    webhooks = shop.state.webhook_dispatcher
    async with shop.state.db.connect() as other_process:
        await other_process.execute(dispatcher._EXCLUSIVE_LOCK)
        await shop.order()
        await wait_until(lambda: shop.scalar("SELECT count(*) FROM orders.webhook_delivery"))
        assert await webhooks._fetch(8) == []

    async def is_leased() -> bool:
        await webhooks._fetch(8)  # or the dispatcher itself was woken and was first
        leased = "SELECT count(*) FROM orders.webhook_delivery WHERE lease IS NOT NULL OR attempts > 0"
        return bool(await shop.scalar(leased))

    await wait_until(is_leased)  # the server frees the lock when it hears of the rollback


@pytest.mark.parametrize(("due_in_s", "soon"), [(SOON_S + 60, False), (SOON_S - 1, True)])
async def test_the_dispatcher_is_not_quiet_before_a_delivery_is_due(of_created_orders, due_in_s, soon):
    shop, _ = await of_created_orders(webhook_poll_interval_s=60.0)
    await shop.wait_until_settled(await shop.order(), "confirmed")

    async def nothing_is_under_way() -> bool:
        unpublished = await shop.scalar(
            "SELECT count(*) FROM orders.outbox_batch WHERE id > (SELECT max(id) FROM orders.outbox_cursor)"
        )
        return not unpublished and not shop.state.worker.in_work()

    await wait_until(nothing_is_under_way)
    await shop.run(f"UPDATE orders.webhook_delivery SET due_at = now() + interval '{due_in_s} seconds'")
    shop.state.webhook_dispatcher.queue.has_soon = False
    assert await shop.state.webhook_dispatcher._fetch(8) == []
    assert shop.state.webhook_dispatcher.queue.has_soon is soon


async def test_a_delivery_whose_lease_expired_is_sent_by_another_process(of_created_orders, receiver):
    shop, endpoint = await of_created_orders()
    await shop.order()
    await wait_for_deliveries(shop, endpoint, "delivered")
    await shop.run(
        "UPDATE orders.webhook_delivery SET due_at = now(), lease = 'dead', lease_until = now() - interval '1s'"
    )
    await wait_until(lambda: len(receiver.received) == 2)


async def test_adding_and_removing_an_endpoint_is_in_the_audit_log(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add_endpoint(shop, receiver)
    removed = await shop.http.delete(
        f"{WEBHOOKS}/{endpoint['endpoint_id']}", params={"reason": "moved away"}, headers=ROOT
    )
    assert removed.status_code == 204
    assert (await shop.http.get(f"{WEBHOOKS}/{endpoint['endpoint_id']}/deliveries", headers=VIEWER)).status_code == 404
    subject = {"subject": f"webhook:{endpoint['endpoint_id']}"}
    lines = (await shop.http.get("/admin/orders/changes", params=subject, headers=VIEWER)).json()["changes"]
    assert [(line["action"], line["actor"], line["reason"]) for line in lines] == [
        ("webhook-remove", "root", "moved away"),
        ("webhook-add", "root", "the organiser's CRM"),
    ]
    assert "whsec_" not in str(lines)


def test_signatures_follow_the_standard_webhooks_specification():
    secret, at_s = dispatcher.new_secret(), 1_700_000_000
    reference = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at_s, UTC), '{"a": "ü"}')
    assert dispatcher.sign(secret, "msg_1", at_s, '{"a": "ü"}') == reference


def test_retry_delays_grow_over_days_with_jitter():
    delays = Settings.model_fields["webhook_backoff_s"].default
    assert list(delays) == sorted(delays)
    assert 3 * 86_400 < sum(delays) < 5 * 86_400
    assert retry_delay_s(delays, 1, 0.0) == 5
    assert retry_delay_s(delays, 1, 1.0) == 6
    assert retry_delay_s(delays, len(delays) + 1, 0.0) is None


@pytest.mark.parametrize(("status", "delivered"), [(200, True), (299, True), (199, False), (302, False), (410, False)])
def test_only_2xx_is_delivered(status, delivered):
    assert DeliveryResult(status=status).delivered is delivered


def test_production_refuses_the_sandbox_and_only_development_sends_webhooks_to_its_own_machine(monkeypatch):
    for name in ("CUSTOMER", "HOLDER", "ORDER_TOKEN", "PASS_PUBLIC", "SANDBOX_WEBHOOK", "SERVICE", "TICKET"):
        monkeypatch.setenv(f"ONSALE_{name}_KEYS", "k1:" + "A" * 43)
    with pytest.raises(ValueError, match="set ORDERS_PAYMENT_PROVIDERS, or to rehearse ONSALE_ENVIRONMENT=rehearsal"):
        Settings(environment="production", secure_cookies=True)
    rehearsal = Settings(environment="rehearsal")
    assert rehearsal.payment_providers == ("sandbox",)
    assert not rehearsal.webhooks_to_this_machine
    assert Settings(environment="development").webhooks_to_this_machine
