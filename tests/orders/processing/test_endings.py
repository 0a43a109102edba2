"""How orders end: cancelled, expired, declined or paid late, and money without a sale is refunded."""

import pytest

from services.orders.order import leases
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def test_a_fan_may_pay_by_another_card_after_a_decline(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    order = await shop.view(reference)
    assert (order["status"], order["attempt"]["reason"]) == ("pending", "card_declined")
    answer = await shop.pay_again(reference)
    assert answer.status_code == 202, answer.text
    assert (await shop.pay_again(reference)).headers["idempotency-replayed"] == "true"
    assert (await shop.pay_again(reference, method="slow")).json()["type"] == "/problems/idempotency-key-reused"
    await shop.wait_until_settled(reference, "confirmed")
    assert [c["idempotency_key"] for c in await shop.charges(reference)] == [f"{reference}:1", f"{reference}:2"]
    assert (await shop.pay_again(reference, key="third")).json()["type"] == "/problems/order-not-pending"


async def test_a_second_attempt_is_refused_while_the_first_is_live(shop):
    reference = await shop.order(method="redirect")
    answer = await shop.pay_again(reference)
    assert problem(answer) == (409, "payment-in-progress")


async def test_an_order_is_cancelled_before_payment_and_its_hold_released(shop):
    reservation = shop.holds.hold()
    reference = await shop.order_of(reservation, method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert (await shop.cancel(reference)).is_success
    await shop.wait_until_settled(reference, "cancelled")
    await wait_until(lambda: shop.holds.reservations[reservation].status == "cancelled")
    assert (await shop.cancel(reference)).status_code == 200


async def test_cancelling_an_order_cancels_its_live_charge(shop):
    reference = await shop.order(method="redirect")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    assert (await shop.cancel(reference)).is_success
    await shop.wait_until_settled(reference, "cancelled")
    assert [c["status"] for c in await shop.charges(reference)] == ["cancelled"]


async def test_a_paid_order_cannot_be_cancelled(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    answer = await shop.cancel(reference)
    assert problem(answer) == (409, "order-not-pending")


async def test_a_payment_after_the_fan_cancelled_is_refunded(shop):
    """The payment came in time and the seats are free, but the fan had cancelled."""
    reference = await shop.order(method="success_after_cancel")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.cancel(reference)
    await shop.wait_until_settled(reference, "refunded")
    assert "reacquire" not in shop.holds.called_paths
    assert await shop.violated_invariants() == {}


@pytest.mark.parametrize(
    ("grace_s", "taken", "end"), [(5, False, "confirmed"), (5, True, "refunded"), (0, False, "refunded")]
)
async def test_a_late_payment_confirms_the_order_within_the_grace_period_only(shop, grace_s, taken, end):
    """The order expires, and its cancelled charge succeeds 0.1 s later."""
    reservation = shop.holds.hold(grace_s=grace_s)
    if taken:
        shop.holds.taken.add(reservation)
    reference = await shop.order_of(reservation, method="success_after_cancel")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    assert await shop.wait_until_settled(reference, "confirmed", "refunded") == end
    assert (shop.holds.reservations[reservation].status == "confirmed") == (end == "confirmed")
    assert await shop.violated_invariants() == {}


async def test_an_expiring_order_that_was_paid_is_confirmed(processes):
    """The fan paid on the hosted page, no webhook came, and the deadline passes before the next sync."""
    shop = await processes.open(provider_sync_interval_s=60)
    reference = await shop.order(method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    url = (await shop.view(reference))["attempt"]["checkout_url"]
    await shop.sandbox.post(url, data={"choice": "pay"})
    await shop.expire(reference)
    await shop.wait_until_settled(reference, "confirmed")
    assert "release" not in shop.holds.called_paths


async def test_a_charge_without_a_webhook_is_found_and_refunded(processes):
    """The sync after the end of an order finds it."""
    shop = await processes.open(post_end_sync_delays_s=(0.5, 1.0))
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    await shop.charge_at_sandbox(reference, amount_minor=6800, method="refund_fails_once", key="stray")
    assert await shop.net_minor(reference) == 2 * 6800
    await shop.wait_until_settled(reference, "confirmed")
    assert await shop.violated_invariants() == {}


async def test_an_outcome_unknown_for_too_long_goes_to_review_with_its_hold(processes):
    """The provider does not answer, so the outcome stays unknown."""
    shop = await processes.open(provider_timeout_s=0.15, review_after_s=60.0)
    await shop.sandbox.post("/control", json={"latency_s": 5})
    reference = await shop.order(method="timeout_after_success")
    await wait_until(lambda: shop.charges(reference))
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    await shop.expire(reference, ago_s=100)
    await wait_until(lambda: shop.status_is(reference, "review"))
    assert set(shop.holds.called_paths) == {"begin-payment"}
    await shop.sandbox.post("/control", json={"down_for_s": 0, "latency_s": 0})
    async with shop.state.db.begin() as connection:
        await leases.mark_due(connection, reference)
    await shop.wait_until_settled(reference, "confirmed")
