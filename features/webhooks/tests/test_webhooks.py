"""Webhooks: a delivery is signed, queued once for its event, and retried until it is accepted or has failed."""

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook

from features.webhooks import orders as part
from features.webhooks.orders import WebhookSettings, dispatcher, open_webhooks
from features.webhooks.orders.dispatcher import SOON_S, DeliveryResult, WebhookDispatcher, retry_delay_s
from services.orders.settings import Settings
from shared.web.parts import with_settings_of_parts
from tests.orders.checkout.test_names import bought as bought_with_names
from tests.orders.checkout.test_names import ids_of, rename
from tests.orders.inventory import EVENT
from tests.orders.priced_event import open_sale
from tests.orders.shop import ROOT, VIEWER
from tests.support.providers.receiver import Receiver, webhook_receiver
from tests.support.running.services import StillLoops
from tests.support.wait import wait_until

BACKOFF_S = (0.05,) * 9
WEBHOOKS = "/admin/orders/webhooks"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "POLL_S", 0.05)
    monkeypatch.setattr(dispatcher, "TIMEOUT_S", 0.3)


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
    """Opens a shop and an endpoint for created orders."""

    async def open_one(backoff_s=BACKOFF_S):
        shop = await processes.open(webhook_backoff_s=backoff_s)
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
    settings = with_settings_of_parts(Settings, "orders")()
    assert isinstance(settings, WebhookSettings)
    assert settings.webhook_backoff_s == (0.5, 3)


async def test_an_endpoint_receives_signed_events_of_an_order(processes, receiver):
    shop = await processes.open()
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
    shop = await processes.open()
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


async def test_an_endpoint_is_told_which_tickets_have_other_names_and_not_which(processes, receiver):
    shop = await processes.open()
    endpoint = await add_endpoint(shop, receiver, kinds=["order.renamed"])
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought_with_names(sale, ["Ada", "Grace", "Bob"])
    [first, *_] = await ids_of(sale, reference)
    await rename(sale, reference, names={first: "Carl"})
    await wait_until(lambda: receiver.received)
    assert receiver.event_types == ["order.renamed"]
    data = receiver.received[0].verified(endpoint["secret"])["data"]
    assert (data["reference"], data["tickets"]) == (reference, [first])
    assert "Carl" not in str(data)


async def have_read(shop) -> bool:
    """Whether every event has its deliveries."""
    return not await shop.scalar(
        "SELECT count(*) FROM orders.outbox_batch "
        "WHERE id > (SELECT id FROM orders.outbox_cursor WHERE name = 'webhooks')"
    )


async def test_an_event_that_is_read_again_is_not_sent_again(of_created_orders, receiver):
    shop, endpoint = await of_created_orders()
    await shop.order()
    await wait_for_deliveries(shop, endpoint, "delivered")
    await shop.run("UPDATE orders.outbox_cursor SET id = 0 WHERE name = 'webhooks'")
    await shop.order()
    await wait_until(lambda: len(receiver.received) >= 2)
    await wait_until(lambda: have_read(shop))
    assert len(await wait_for_deliveries(shop, endpoint, "delivered")) == 2
    assert len({request.headers["webhook-id"] for request in receiver.received}) == len(receiver.received) == 2


async def test_a_queue_that_fails_stops_no_sale_and_loses_nothing(of_created_orders, receiver, monkeypatch):
    """Deliveries and cursor are of one transaction: neither moves while it fails, and the events come again."""
    tried, is_broken, queue = [], True, dispatcher.queue_deliveries

    async def fail(connection, events) -> bool:
        queued = await queue(connection, events)
        tried.append(len(events))
        if is_broken:
            raise RuntimeError("out of order")
        return queued

    monkeypatch.setattr(dispatcher, "queue_deliveries", fail)
    shop, endpoint = await of_created_orders()
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    await wait_until(lambda: len(tried) > 1)
    assert await deliveries(shop, endpoint) == []
    is_broken = False
    [delivery] = await wait_for_deliveries(shop, endpoint, "delivered")
    assert (delivery["reference"], len(receiver.received)) == (reference, 1)


async def test_a_failing_receiver_gets_the_same_message_id_until_it_accepts(of_created_orders, receiver, monkeypatch):
    """It has accepted once its status says so: an endless response is not read to its end."""
    monkeypatch.setattr(dispatcher, "TIMEOUT_S", 0.5)
    shop, endpoint = await of_created_orders()
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
    await shop.wait_until_settled(await shop.order(), "confirmed")
    await wait_until(lambda: have_read(shop))
    [delivery] = await deliveries(shop, endpoint)
    assert (delivery["status"], delivery["answer_status"]) == ("failed", 410), "the second order made no delivery"
    answer = await shop.http.post(
        f"{WEBHOOKS}/{endpoint['endpoint_id']}/enable", json={"reason": "repaired"}, headers=ROOT
    )
    assert (answer.status_code, answer.json()["disabled_at"]) == (200, None)
    await resend(shop, delivery)
    await wait_for_deliveries(shop, endpoint, "delivered")
    assert len(receiver.received) == 2


async def test_an_endpoint_that_fails_for_days_is_disabled(of_created_orders, receiver, monkeypatch):
    monkeypatch.setattr(dispatcher, "DISABLE_AFTER_S", 0.2)
    shop, _ = await of_created_orders()
    receiver.faults = ["failing"] * 9
    await shop.order()
    await wait_until(lambda: is_disabled(shop))
    assert 1 < len(receiver.received) < 10


async def test_a_delivery_fails_after_the_last_retry_and_can_be_resent(of_created_orders, receiver):
    shop, endpoint = await of_created_orders(backoff_s=(0.05,))
    receiver.faults = ["failing", "failing"]
    await shop.order()
    [delivery] = await wait_for_deliveries(shop, endpoint, "failed")
    await resend(shop, delivery)
    await wait_for_deliveries(shop, endpoint, "delivered")


async def test_each_endpoint_has_its_own_limit_of_concurrent_deliveries(processes, receiver, monkeypatch):
    monkeypatch.setattr(dispatcher, "TIMEOUT_S", 20.0)
    monkeypatch.setattr(dispatcher, "ENDPOINT_CONCURRENCY", 2)
    async with AsyncExitStack() as stack:
        fast = await stack.enter_async_context(webhook_receiver())
        shops = [await processes.open(), await processes.open()]
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


async def test_only_one_process_at_a_time_leases_deliveries(of_created_orders, monkeypatch):
    """Otherwise deliveries that become due meanwhile would exceed the endpoint's limit."""
    monkeypatch.setattr(part, "POLL_S", 60.0)
    monkeypatch.setattr(dispatcher, "ENDPOINT_CONCURRENCY", 1)
    shop, _ = await of_created_orders()
    webhooks = shop.app.state.parts[WebhookDispatcher]
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
async def test_the_dispatcher_is_not_quiet_before_a_delivery_is_due(of_created_orders, due_in_s, soon, monkeypatch):
    monkeypatch.setattr(part, "POLL_S", 60.0)
    shop, _ = await of_created_orders()
    webhooks = shop.app.state.parts[WebhookDispatcher]
    await shop.wait_until_settled(await shop.order(), "confirmed")

    async def nothing_is_under_way() -> bool:
        unread = await shop.scalar(
            "SELECT count(*) FROM orders.outbox_batch WHERE id > (SELECT min(id) FROM orders.outbox_cursor)"
        )
        return not unread and not shop.state.worker.in_work() and not webhooks.rows

    await wait_until(nothing_is_under_way)
    await shop.run(f"UPDATE orders.webhook_delivery SET due_at = now() + interval '{due_in_s} seconds'")
    webhooks.has_soon = False
    assert await webhooks._fetch(8) == []
    assert webhooks.has_soon is soon


async def test_a_delivery_whose_lease_expired_is_sent_by_another_process(of_created_orders, receiver):
    shop, endpoint = await of_created_orders()
    await shop.order()
    await wait_for_deliveries(shop, endpoint, "delivered")
    await shop.run(
        "UPDATE orders.webhook_delivery SET due_at = now(), lease = 'dead', lease_until = now() - interval '1s'"
    )
    await wait_until(lambda: len(receiver.received) == 2)


async def test_adding_and_removing_an_endpoint_is_in_the_audit_log(processes, receiver):
    shop = await processes.open()
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
    delays = WebhookSettings.model_fields["webhook_backoff_s"].default
    assert list(delays) == sorted(delays)
    assert 3 * 86_400 < sum(delays) < 5 * 86_400
    assert retry_delay_s(delays, 1, 0.0) == 5
    assert retry_delay_s(delays, 1, 1.0) == 6
    assert retry_delay_s(delays, len(delays) + 1, 0.0) is None


@pytest.mark.parametrize(("status", "delivered"), [(200, True), (299, True), (199, False), (302, False), (410, False)])
def test_only_2xx_is_delivered(status, delivered):
    assert DeliveryResult(status=status).delivered is delivered


@pytest.mark.parametrize(("kind", "loopback"), [("development", True), ("rehearsal", False)])
async def test_only_development_sends_webhooks_to_its_own_machine(shop, kind, loopback):
    settings = shop.state.settings.model_copy(update={"environment": kind})
    async with open_webhooks(replace(shop.state, settings=settings), loops=StillLoops()) as webhooks:
        assert webhooks.sender.loopback is loopback
