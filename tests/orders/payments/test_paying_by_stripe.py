"""Fans pay by Stripe, also while it misbehaves: an order ends confirmed and paid once, or not paid."""

import pytest
from prometheus_client import REGISTRY

from tests.orders.shop import pass_of
from tests.support.providers.stripe_double import signed
from tests.support.wait import wait_until

BACK = "https://tickets.example/o/back"


async def test_a_card_is_charged_once_and_the_order_confirmed(shop, environment):
    reference = await by_card(shop, "pm_card_visa")
    await ends(shop, environment, reference, "confirmed")
    [intent] = intents(environment)
    assert intent["metadata"] == {"reference": reference, "key": f"{reference}:1"}


@pytest.mark.parametrize("token", ["pm_error_after_success", "pm_hang_after_success"])
async def test_money_taken_without_a_good_answer_is_found(processes, environment, token):
    """Without webhooks and without a second charge."""
    shop = await processes.open(provider_timeout_s=0.3)
    reference = await by_card(shop, token)
    await ends(shop, environment, reference, "confirmed")
    assert len(intents(environment)) == 1


async def test_a_declined_fan_pays_by_another_card(shop, environment):
    reference = await by_card(shop, "pm_card_chargeDeclined")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    seen = await shop.see(reference)
    assert (seen["status"], seen["attempt"]["reason"]) == ("pending", "no_money")
    body = {"payment": {"provider": "stripe", "method": "card", "token": "pm_card_visa"}}
    headers = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "second"}
    assert (await shop.http.post(f"/orders/{reference}/payments", json=body, headers=headers)).status_code == 202
    await ends(shop, environment, reference, "confirmed")
    assert [intent["status"] for intent in intents(environment)] == ["requires_payment_method", "succeeded"]


async def test_a_failure_that_becomes_a_success_is_one(shop, environment):
    reference = await by_card(shop, "pm_card_chargeDeclined")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    environment.stripe.books.pay(intents(environment)[0])
    await ends(shop, environment, reference, "confirmed")


async def test_a_second_charge_under_one_order_is_refunded_alone(shop, environment):
    reference = await by_card(shop, "pm_double")
    await ends(shop, environment, reference, "confirmed")
    assert len(intents(environment)) == 2


async def test_a_fan_pays_on_stripes_page_after_a_decline_there_and_comes_back(shop, environment):
    """Webhooks come three times each, the last first; each only requests a sync."""
    books = environment.stripe.books
    books.copies, books.held = 3, []
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    attempt = (await shop.row(reference)).attempt
    assert (await shop.see(reference))["attempt"]["checkout_url"] == books.objects[attempt.provider_ref]["url"]
    books.choose(attempt.provider_ref, declined=True)
    await looked_again(environment)
    assert await shop.attempt_is(reference, "requires_action"), "the page is still open"
    assert books.choose(attempt.provider_ref) == BACK
    for body in reversed(books.held):
        books.send(body)
    await ends(shop, environment, reference, "confirmed")
    assert (await shop.see(reference))["attempt"]["checkout_url"] is None


async def test_an_expired_order_closes_its_page(shop, environment):
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await shop.expire(reference)
    await ends(shop, environment, reference, "expired")
    [page] = [each for each in environment.stripe.books.objects.values() if each["object"] == "checkout.session"]
    assert page["status"] == "expired"


async def test_a_page_that_stripe_closes_leaves_the_fan_another_try(shop, environment):
    """No money moved, so the page is in no list of charges: it is fetched by its id."""
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    environment.stripe.books.held = []
    environment.stripe.books.expire({}, (await shop.row(reference)).attempt.provider_ref)
    await wait_until(lambda: shop.attempt_is(reference, "cancelled"))
    assert await shop.status(reference) == "pending"


async def test_a_bank_that_wants_to_see_the_fan_is_shown_them(shop, environment):
    token, back = "pm_card_threeDSecure2Required", "https://tickets.example/o/{reference}"
    reference = await shop.order(method="card", provider="stripe", token=token, return_url=back)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    [intent] = intents(environment)
    url = (await shop.see(reference))["attempt"]["checkout_url"]
    assert (url, intent["return_url"]) == (
        f"https://bank.example/{intent['id']}",
        f"https://tickets.example/o/{reference}",
    )
    environment.stripe.books.pay(intent)
    await ends(shop, environment, reference, "confirmed")


async def test_an_order_that_expires_as_its_page_is_paid_is_confirmed(processes, environment):
    """No webhook comes, and the deadline passes before the next sync."""
    shop = await processes.open(provider_sync_interval_s=60)
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    environment.stripe.books.choose((await shop.row(reference)).attempt.provider_ref)
    await shop.expire(reference)
    await ends(shop, environment, reference, "confirmed")


async def test_while_stripe_still_works_on_a_payment_nothing_is_released(processes, environment):
    """It cannot be cancelled, so the order waits, and goes to review past the limit."""
    shop = await processes.open(review_after_s=60.0)
    reference = await by_card(shop, "pm_processing")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    await wait_until(lambda: [path for _, path in environment.stripe.calls if path.endswith("/cancel")])
    assert await shop.status(reference) == "pending"
    alerts = reviews()
    await shop.expire(reference, ago_s=100)
    await wait_until(lambda: _has(shop, reference, "review"))
    assert reviews() == alerts + 1
    assert {path for path, *_ in shop.holds.asked} == {"begin-payment"}
    environment.stripe.books.pay(intents(environment)[0])
    await shop.run('UPDATE orders."order" SET due_at = now(), wake_count = wake_count + 1')
    await ends(shop, environment, reference, "confirmed")


async def test_webhooks_about_nothing_of_ours_are_answered_and_not_kept(shop):
    """Another shop uses the same account."""
    body = b'{"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1", "metadata": {}}}}'
    answer = await shop.http.post("/webhooks/stripe", content=body, headers={"stripe-signature": signed(body)})
    assert answer.status_code == 200
    async with shop.app.state.deps.db.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM orders.webhook_inbox")).scalar() == 0


async def by_card(shop, token: str) -> str:
    return str(await shop.order(method="card", provider="stripe", token=token))


def intents(environment):
    return [each for each in environment.stripe.books.objects.values() if each["object"] == "payment_intent"]


def kept_minor(environment):
    """What Stripe captured and did not refund."""
    books = environment.stripe.books.objects.values()
    given = sum(each["amount"] for each in books if each["object"] == "refund")
    return sum(intent["amount_received"] for intent in intents(environment)) - given


async def ends(shop, environment, reference, status):
    async def agrees():
        return await shop.status(reference) == status and kept_minor(environment) == 6800 * (status == "confirmed")

    await wait_until(agrees, timeout_s=15, interval_s=0.03)
    assert await shop.audit() == {}


async def looked_again(environment):
    """Two more syncs have begun, so one of them is done."""
    before = len(environment.stripe.calls)
    await wait_until(lambda: [path for _, path in environment.stripe.calls[before:]].count("/v1/charges") > 1)


def reviews():
    return REGISTRY.get_sample_value("orders_reviews_total", {"reason": "unknown"}) or 0


async def _has(shop, reference, status):
    return await shop.status(reference) == status
