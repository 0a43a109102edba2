"""Cancelled, expired, declined, paid late: the order ends as it should, and money without a sale is refunded."""

import pytest

from services.orders.order import leases
from tests.orders.shop import pass_of
from tests.support.wait import wait_until


async def test_a_declined_fan_may_try_another_card(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    seen = await shop.see(reference)
    assert (seen["status"], seen["attempt"]["reason"]) == ("pending", "card_declined")
    answer = await _pay(shop, reference, "ok", key="second")
    assert answer.status_code == 202, answer.text
    assert (await _pay(shop, reference, "ok", key="second")).headers["idempotency-replayed"] == "true"
    assert (await _pay(shop, reference, "slow", key="second")).json()["type"] == "/problems/idempotency-key-reused"
    await shop.settled(reference, "confirmed")
    assert [c["idempotency_key"] for c in await shop.charges(reference)] == [f"{reference}:1", f"{reference}:2"]
    assert (await _pay(shop, reference, "ok", key="third")).json()["type"] == "/problems/order-not-pending"


async def test_a_second_attempt_waits_for_the_first(shop):
    reference = await shop.order(method="redirect")
    answer = await _pay(shop, reference, "ok", key="second")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/payment-in-progress")


async def test_an_order_is_cancelled_before_payment_and_its_hold_released(shop):
    reservation = shop.holds.hold()
    reference = await shop.order_of(reservation, method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert (await _cancel(shop, reference)).is_success
    await shop.settled(reference, "cancelled")
    await wait_until(lambda: shop.holds.reservations[reservation].status == "cancelled")
    assert (await _cancel(shop, reference)).status_code == 200


async def test_cancelling_a_live_attempt_asks_the_provider_first(shop):
    reference = await shop.order(method="redirect")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    assert (await _cancel(shop, reference)).is_success
    await shop.settled(reference, "cancelled")
    assert [c["status"] for c in await shop.charges(reference)] == ["cancelled"]


async def test_a_paid_order_cannot_be_cancelled(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    answer = await _cancel(shop, reference)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/order-not-pending")


async def test_a_success_after_the_fan_cancelled_is_refunded_always(shop):
    """In time and with the seats free: the fan did not want them any more."""
    reference = await shop.order(method="success_after_cancel")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await _cancel(shop, reference)
    await shop.settled(reference, "refunded")
    assert "reacquire" not in {path for path, *_ in shop.holds.asked}
    assert await shop.audit() == {}


@pytest.mark.parametrize(
    ("grace_s", "taken", "end"), [(5, False, "confirmed"), (5, True, "refunded"), (0, False, "refunded")]
)
async def test_a_late_payment_is_judged_by_when_the_provider_took_it(shop, grace_s, taken, end):
    """The order expires, its charge is cancelled, and succeeds 0.1 s later all the same."""
    reservation = shop.holds.hold(grace_s=grace_s)
    if taken:
        shop.holds.taken.add(reservation)
    reference = await shop.order_of(reservation, method="success_after_cancel")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    assert await shop.settled(reference, "confirmed", "refunded") == end
    assert (shop.holds.reservations[reservation].status == "confirmed") == (end == "confirmed")
    assert await shop.audit() == {}


async def test_an_expiring_order_that_turns_out_paid_is_confirmed(processes):
    """The fan paid on the hosted page, no webhook came, and the deadline passes before the next sync."""
    shop = await processes.open(provider_sync_interval_s=60)
    reference = await shop.order_of(shop.holds.hold(), method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    url = (await shop.see(reference))["attempt"]["checkout_url"]
    await shop.sandbox.post(url, data={"choice": "pay"})
    await shop.expire(reference)
    await shop.settled(reference, "confirmed")
    assert "release" not in {path for path, *_ in shop.holds.asked}


async def test_money_nobody_told_us_of_is_found_and_refunded(processes):
    """A charge under a finished order's reference, without a webhook: the sync after the end finds it."""
    shop = await processes.open(post_end_sync_delays_s=(0.5, 1.0))
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    stray = {"reference": reference, "amount_minor": 6800, "currency": "EUR", "method": "refund_fails_once"}
    answer = await shop.sandbox.post("/charges", json=stray, headers={"idempotency-key": "stray"})
    assert answer.status_code == 201
    assert await shop.net_minor(reference) == 2 * 6800
    await shop.settled(reference, "confirmed")
    assert await shop.audit() == {}


async def test_unknown_past_the_limit_goes_to_a_person_and_nothing_is_released(processes):
    """The provider never answers, so whether it charged stays unknown."""
    shop = await processes.open(provider_timeout_s=0.15, review_after_s=60.0)
    await shop.sandbox.post("/control", json={"latency_s": 5})
    reference = await shop.order(method="timeout_after_success")
    await wait_until(lambda: _attempted(shop, reference))
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    await shop.expire(reference, ago_s=100)
    await wait_until(lambda: _has(shop, reference, "review"), timeout_s=10)
    assert {path for path, *_ in shop.holds.asked} == {"begin-payment"}
    await shop.sandbox.post("/control", json={"down_for_s": 0, "latency_s": 0})
    async with shop.app.state.deps.db.begin() as connection:
        await leases.mark_due(connection, reference)
    await shop.settled(reference, "confirmed")


async def _attempted(shop, reference):
    return await shop.charges(reference)


async def _has(shop, reference, status):
    return await shop.status(reference) == status


async def _pay(shop, reference, method, *, key):
    headers = {"authorization": f"Bearer {pass_of()}", "idempotency-key": key}
    body = {"payment": {"provider": "sandbox", "method": method}}
    return await shop.http.post(f"/orders/{reference}/payments", json=body, headers=headers)


async def _cancel(shop, reference):
    headers = {"authorization": f"Bearer {pass_of()}"}
    return await shop.http.post(f"/orders/{reference}/cancel", headers=headers)
