"""Organisers are told of orders: once owed, a webhook is signed, sent again for as long as it takes, and never lost."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from sqlalchemy import text
from standardwebhooks.webhooks import Webhook

from services.orders.settings import Settings
from services.orders.webhooks import dispatcher, sender
from services.orders.webhooks.sender import DeliveryResult, retry_delay_s
from shared.contracts.admin.orders import WEBHOOK_KINDS
from tests.orders.holds import EVENT
from tests.orders.shop import ROOT_SECRET, VIEWER_SECRET, pass_of
from tests.support.providers.receiver import Receiver, receiving
from tests.support.wait import wait_until

QUICK = {
    "webhook_allow_loopback": True,
    "webhook_poll_interval_s": 0.05,
    "webhook_timeout_s": 0.3,
    "webhook_backoff_s": (0.05,) * 9,
}
ROOT = {"authorization": f"Bearer {ROOT_SECRET}"}
VIEWER = {"authorization": f"Bearer {VIEWER_SECRET}"}
WEBHOOKS = "/admin/orders/webhooks"


@pytest_asyncio.fixture(loop_scope="session")
async def receiver():
    async with receiving() as receiver:
        yield receiver


async def add(shop, receiver: Receiver, **fields):
    body = {"url": f"{receiver.url}/onsale?from=us", "reason": "the organiser's CRM", **fields}
    answer = await shop.http.post(WEBHOOKS, json=body, headers=ROOT)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def deliveries(shop, endpoint):
    answer = await shop.http.get(f"{WEBHOOKS}/{endpoint['endpoint_id']}/deliveries", headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()["deliveries"]


async def test_an_organiser_is_told_and_can_verify_every_word(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add(shop, receiver)
    assert endpoint["secret"].startswith("whsec_")
    reference = await shop.order()
    await wait_until(lambda: sorted(receiver.kinds) == ["order.confirmed", "order.created"])
    told = {one["type"]: one["data"] for one in (r.verified(endpoint["secret"]) for r in receiver.received)}
    assert {one["reference"] for one in told.values()} == {reference}
    assert told["order.confirmed"]["status"] == "confirmed"
    assert told["order.created"]["total_minor"] == 6800
    assert "holder" not in told["order.created"]
    assert told["order.confirmed"]["version"] > told["order.created"]["version"]
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"))
    shown = (await shop.http.get(WEBHOOKS, headers=VIEWER)).json()["endpoints"]
    assert [one["endpoint_id"] for one in shown] == [endpoint["endpoint_id"]]
    assert "whsec_" not in str(shown)


async def test_endings_are_told_by_their_names_to_whoever_asked_for_them(processes, receiver):
    shop = await processes.open(**QUICK)
    await add(shop, receiver, kinds=["order.expired", "order.refunded", "order.cancelled"], event_id=EVENT)
    await add(shop, receiver, event_id="another")
    sold = await shop.order()
    await shop.settled(sold, "confirmed")
    body = {"reason": "asked nicely"}
    await shop.http.post(f"/admin/orders/{sold}/refund", json=body, headers=ROOT)
    lapsed = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(lapsed, "failed"))
    await shop.expire(lapsed)
    given_up = await shop.order(method="redirect", return_url="http://shop/back")
    await shop.http.post(f"/orders/{given_up}/cancel", headers={"authorization": f"Bearer {pass_of()}"})
    await wait_until(lambda: len(receiver.received) >= 3)
    assert sorted(receiver.kinds) == ["order.cancelled", "order.expired", "order.refunded"]


async def test_what_is_owed_goes_when_its_transaction_goes(shop, receiver):
    """Whoever writes the event owes the webhook: a crash leaves both or neither."""
    await _add_row(shop, "ep_1")
    event = """INSERT INTO orders.outbox (event_id, body) VALUES ('e', '{"id": "1", "type": "order.created",
        "occurred_at_ms": 1, "version": 1, "after": {"reference": "AAAA", "status": "pending"}}')"""
    owed = text("SELECT count(*) FROM orders.webhook_delivery")
    async with shop.app.state.deps.db.connect() as connection:
        await connection.execute(text(event.replace(":", "\\:")))
        assert await connection.scalar(owed) == 1
        await connection.rollback()
        assert await connection.scalar(owed) == 0


async def test_a_receiver_at_its_worst_gets_it_in_the_end_and_can_tell_that_it_is_the_same(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add(shop, receiver, kinds=["order.created"])
    receiver.faults = ["failing", "moved", "silent", "dripping", "cut"]
    await shop.order()
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"), timeout_s=10)
    assert len(receiver.received) == 6
    assert {one.path for one in receiver.received} == {"/onsale?from=us"}, "a redirect was followed"
    assert len({one.headers["webhook-id"] for one in receiver.received}) == 1
    for one in receiver.received:
        one.verified(endpoint["secret"])
    [delivery] = await deliveries(shop, endpoint)
    assert (delivery["attempts"], delivery["answer_status"], delivery["due_at"]) == (6, 204, None)


async def test_an_answer_without_end_is_not_read_to_it(processes, receiver):
    shop = await processes.open(**QUICK | {"webhook_timeout_s": 5.0})
    endpoint = await add(shop, receiver, kinds=["order.created"])
    receiver.faults = ["huge"]
    await shop.order()
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"), timeout_s=3)


async def test_who_answers_410_is_asked_no_more_until_enabled_again(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add(shop, receiver, kinds=["order.created"])
    receiver.faults = ["gone"]
    await shop.order()
    await wait_until(lambda: _is_disabled(shop))
    await shop.order()
    [delivery] = await deliveries(shop, endpoint)
    assert (delivery["status"], delivery["answer_status"]) == ("failed", 410), "nothing more is owed"
    answer = await shop.http.post(
        f"{WEBHOOKS}/{endpoint['endpoint_id']}/enable", json={"reason": "mended"}, headers=ROOT
    )
    assert (answer.status_code, answer.json()["disabled_at"]) == (200, None)
    again = await shop.http.post(f"{WEBHOOKS}/deliveries/{delivery['id']}/resend", json={"reason": "x"}, headers=ROOT)
    assert again.status_code == 202, again.text
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"))
    assert len(receiver.received) == 2


async def test_who_takes_nothing_for_days_is_disabled(processes, receiver):
    shop = await processes.open(**QUICK | {"webhook_disable_after_s": 0.2})
    await add(shop, receiver, kinds=["order.created"])
    receiver.faults = ["failing"] * 9
    await shop.order()
    await wait_until(lambda: _is_disabled(shop))
    assert 1 < len(receiver.received) < 10


async def test_after_the_last_pause_a_delivery_has_failed_and_can_be_sent_again(processes, receiver):
    shop = await processes.open(**QUICK | {"webhook_backoff_s": (0.05,)})
    endpoint = await add(shop, receiver, kinds=["order.created"])
    receiver.faults = ["failing", "failing"]
    await shop.order()
    await wait_until(lambda: _all_are(shop, endpoint, "failed"))
    [delivery] = await deliveries(shop, endpoint)
    await shop.http.post(f"{WEBHOOKS}/deliveries/{delivery['id']}/resend", json={"reason": "x"}, headers=ROOT)
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"))


async def test_no_endpoint_has_more_on_their_way_than_it_may_and_none_waits_for_another(processes, receiver):
    async with AsyncExitStack() as stack:
        fine = await stack.enter_async_context(receiving())
        stuck = {**QUICK, "webhook_timeout_s": 20.0, "webhook_endpoint_concurrency": 2}
        shops = [await processes.open(**stuck), await processes.open(**stuck)]
        await add(shops[0], receiver, kinds=["order.created"])
        await add(shops[0], fine, kinds=["order.created"])
        receiver.faults = ["held"] * 8
        for _ in range(8):
            await shops[0].order()
        await wait_until(lambda: len(fine.received) == 8)
        assert receiver.at_once == receiver.at_once_max == 2
        receiver.release.set()
        await wait_until(lambda: len(receiver.received) == 8)
        assert receiver.at_once_max == 2


async def test_one_process_takes_at_a_time(processes, receiver):
    """Else one that comes due meanwhile is taken beside those that another is just taking."""
    shop = await processes.open(**QUICK | {"webhook_poll_interval_s": 60.0, "webhook_endpoint_concurrency": 1})
    await add(shop, receiver, kinds=["order.created"])
    webhooks = shop.app.state.deps.webhook_dispatcher
    async with shop.app.state.deps.db.connect() as another:
        await another.execute(dispatcher._EXCLUSIVE_LOCK)
        await shop.order()
        assert await webhooks._fetch(8) == []
    assert len(await webhooks._fetch(8)) == 1


async def test_who_dies_with_a_delivery_leaves_it_to_others(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add(shop, receiver, kinds=["order.created"])
    await shop.order()
    await wait_until(lambda: _all_are(shop, endpoint, "delivered"))
    await shop.run(
        "UPDATE orders.webhook_delivery SET due_at = now(), lease = 'dead', lease_until = now() - interval '1s'"
    )
    await wait_until(lambda: len(receiver.received) == 2)


async def test_adding_removing_and_sending_again_are_in_the_audit_trail(processes, receiver):
    shop = await processes.open(**QUICK)
    endpoint = await add(shop, receiver)
    gone = await shop.http.delete(
        f"{WEBHOOKS}/{endpoint['endpoint_id']}", params={"reason": "moved away"}, headers=ROOT
    )
    assert gone.status_code == 204
    assert (await shop.http.get(f"{WEBHOOKS}/{endpoint['endpoint_id']}/deliveries", headers=VIEWER)).status_code == 404
    subject = {"subject": f"webhook:{endpoint['endpoint_id']}"}
    lines = (await shop.http.get("/admin/orders/changes", params=subject, headers=VIEWER)).json()["changes"]
    assert [(line["action"], line["actor"], line["reason"]) for line in lines] == [
        ("webhook-remove", "root", "moved away"),
        ("webhook-add", "root", "the organiser's CRM"),
    ]
    assert "whsec_" not in str(lines)


def test_signatures_are_those_of_the_standard():
    secret, at_s = sender.new_secret(), 1_700_000_000
    theirs = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at_s, UTC), '{"a": "ü"}')
    assert sender.sign(secret, "msg_1", at_s, '{"a": "ü"}') == theirs


def test_pauses_grow_over_days_with_jitter():
    pauses = Settings.model_fields["webhook_backoff_s"].default
    assert list(pauses) == sorted(pauses)
    assert 3 * 86_400 < sum(pauses) < 5 * 86_400
    assert retry_delay_s(pauses, 1, 0.0) == 5
    assert retry_delay_s(pauses, 1, 1.0) == 6
    assert retry_delay_s(pauses, len(pauses) + 1, 0.0) is None


@pytest.mark.parametrize(("status", "delivered"), [(200, True), (299, True), (199, False), (302, False), (410, False)])
def test_only_2xx_is_delivered(status, delivered):
    assert DeliveryResult(status=status).delivered is delivered


def test_production_does_not_give_tickets_away_unless_it_is_told_to(monkeypatch):
    for name in ("CUSTOMER", "HOLDER", "ORDER_TOKEN", "PASS_PUBLIC", "SANDBOX_WEBHOOK", "SERVICE", "TICKET"):
        monkeypatch.setenv(f"ONSALE_{name}_KEYS", "k1:" + "A" * 43)
    with pytest.raises(ValueError, match="set ORDERS_PAYMENT_PROVIDERS, or ORDERS_ALLOW_SANDBOX=true"):
        Settings(environment="production", secure_cookies=True)
    assert Settings(environment="production", secure_cookies=True, allow_sandbox=True).payment_providers == ("sandbox",)


def test_production_never_sends_to_itself(monkeypatch):
    for name in ("CUSTOMER", "HOLDER", "ORDER_TOKEN", "PASS_PUBLIC", "SANDBOX_WEBHOOK", "SERVICE", "TICKET"):
        monkeypatch.setenv(f"ONSALE_{name}_KEYS", "k1:" + "A" * 43)
    with pytest.raises(ValueError, match="webhook_allow_loopback"):
        Settings(environment="production", webhook_allow_loopback=True, allow_sandbox=True, secure_cookies=True)
    assert len(WEBHOOK_KINDS) == 5


async def _all_are(shop, endpoint, status):
    found = await deliveries(shop, endpoint)
    return bool(found) and {one["status"] for one in found} == {status}


async def _is_disabled(shop):
    [endpoint] = (await shop.http.get(WEBHOOKS, headers=VIEWER)).json()["endpoints"]
    return endpoint["disabled_at"] is not None


async def _add_row(shop, endpoint_id):
    await shop.run(
        "INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds) "
        "VALUES (:id, 'https://x', 'whsec_', '{order.created}')",
        id=endpoint_id,
    )
