"""A fan pays by Stripe, and its bad days end as everybody's do: confirmed and paid for once, or not paid for."""

import pytest
from prometheus_client import REGISTRY

from tests.orders.shop import pass_of
from tests.support.providers.stripe_double import signed
from tests.support.wait import wait_until

BACK = "https://tickets.example/o/back"


async def test_a_card_is_charged_once_and_the_order_confirmed(shop, street):
    reference = await by_card(shop, "pm_card_visa")
    await ends(shop, street, reference, "confirmed")
    [intent] = intents(street)
    assert intent["metadata"] == {"reference": reference, "key": f"{reference}:1"}


@pytest.mark.parametrize("token", ["pm_error_after_success", "pm_hang_after_success"])
async def test_money_taken_without_a_good_answer_is_found(rooms, street, token):
    """Neither webhooks nor a second charge are needed for it."""
    shop = await rooms.open(provider_timeout_s=0.3)
    reference = await by_card(shop, token)
    await ends(shop, street, reference, "confirmed")
    assert len(intents(street)) == 1


async def test_a_declined_fan_pays_by_another_card(shop, street):
    reference = await by_card(shop, "pm_card_chargeDeclined")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    seen = await shop.see(reference)
    assert (seen["status"], seen["attempt"]["reason"]) == ("pending", "no_money")
    body = {"payment": {"provider": "stripe", "method": "card", "token": "pm_card_visa"}}
    headers = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "second"}
    assert (await shop.http.post(f"/orders/{reference}/payments", json=body, headers=headers)).status_code == 202
    await ends(shop, street, reference, "confirmed")
    assert [intent["status"] for intent in intents(street)] == ["requires_payment_method", "succeeded"]


async def test_a_failure_that_becomes_a_success_is_one(shop, street):
    reference = await by_card(shop, "pm_card_chargeDeclined")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    street.stripe.books.pay(intents(street)[0])
    await ends(shop, street, reference, "confirmed")


async def test_a_second_charge_under_one_order_is_refunded_alone(shop, street):
    reference = await by_card(shop, "pm_double")
    await ends(shop, street, reference, "confirmed")
    assert len(intents(street)) == 2


async def test_a_fan_pays_on_stripes_page_after_a_decline_there_and_comes_back(shop, street):
    """Webhooks come three times each, the last first; none of them is believed, all of them are only hints."""
    books = street.stripe.books
    books.copies, books.held = 3, []
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    attempt = (await shop.row(reference)).attempt
    assert (await shop.see(reference))["attempt"]["checkout_url"] == books.objects[attempt.provider_ref]["url"]
    books.choose(attempt.provider_ref, declined=True)
    await looked_again(street)
    assert await shop.attempt_is(reference, "requires_action"), "the page is still open"
    assert books.choose(attempt.provider_ref) == BACK
    for body in reversed(books.held):
        books.send(body)
    await ends(shop, street, reference, "confirmed")
    assert (await shop.see(reference))["attempt"]["checkout_url"] is None


async def test_an_expired_order_closes_its_page(shop, street):
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await shop.expire(reference)
    await ends(shop, street, reference, "expired")
    [page] = [each for each in street.stripe.books.objects.values() if each["object"] == "checkout.session"]
    assert page["status"] == "expired"


async def test_a_page_that_stripe_closes_leaves_the_fan_another_try(shop, street):
    """No money moved, so no list of charges tells of it: the page is asked for by its name."""
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    street.stripe.books.held = []
    street.stripe.books.expire({}, (await shop.row(reference)).attempt.provider_ref)
    await wait_until(lambda: shop.attempt_is(reference, "cancelled"))
    assert await shop.status(reference) == "pending"


async def test_a_bank_that_wants_to_see_the_fan_is_shown_them(shop, street):
    token, back = "pm_card_threeDSecure2Required", "https://tickets.example/o/{reference}"
    reference = await shop.order(method="card", provider="stripe", token=token, return_url=back)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    [intent] = intents(street)
    url = (await shop.see(reference))["attempt"]["checkout_url"]
    assert (url, intent["return_url"]) == (
        f"https://bank.example/{intent['id']}",
        f"https://tickets.example/o/{reference}",
    )
    street.stripe.books.pay(intent)
    await ends(shop, street, reference, "confirmed")


async def test_an_order_that_expires_as_its_page_is_paid_is_confirmed(rooms, street):
    """Nobody tells us, and the deadline passes before the next look."""
    shop = await rooms.open(poll_s=60)
    reference = await shop.order(method="redirect", provider="stripe", return_url=BACK)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    street.stripe.books.choose((await shop.row(reference)).attempt.provider_ref)
    await shop.expire(reference)
    await ends(shop, street, reference, "confirmed")


async def test_while_stripe_still_works_on_a_payment_nothing_is_released(rooms, street):
    """It cannot be called off, so it is waited for, and past the limit a person looks."""
    shop = await rooms.open(review_after_s=60.0)
    reference = await by_card(shop, "pm_processing")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    await wait_until(lambda: [path for _, path in street.stripe.calls if path.endswith("/cancel")])
    assert await shop.status(reference) == "pending"
    alerts = reviews()
    await shop.expire(reference, ago_s=100)
    await wait_until(lambda: _has(shop, reference, "review"))
    assert reviews() == alerts + 1
    assert {path for path, *_ in shop.holds.asked} == {"begin-payment"}
    street.stripe.books.pay(intents(street)[0])
    await shop.run('UPDATE orders."order" SET due_at = now(), wake_count = wake_count + 1')
    await ends(shop, street, reference, "confirmed")


async def test_webhooks_about_nothing_of_ours_are_answered_and_not_kept(shop):
    """Another shop on the same account."""
    body = b'{"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1", "metadata": {}}}}'
    answer = await shop.http.post("/webhooks/stripe", content=body, headers={"stripe-signature": signed(body)})
    assert answer.status_code == 200
    async with shop.app.state.deps.db.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM orders.webhook_inbox")).scalar() == 0


async def by_card(shop, token: str) -> str:
    return str(await shop.order(method="card", provider="stripe", token=token))


def intents(street):
    return [each for each in street.stripe.books.objects.values() if each["object"] == "payment_intent"]


def kept_minor(street):
    """What Stripe took and did not give back."""
    books = street.stripe.books.objects.values()
    given = sum(each["amount"] for each in books if each["object"] == "refund")
    return sum(intent["amount_received"] for intent in intents(street)) - given


async def ends(shop, street, reference, status):
    async def agrees():
        return await shop.status(reference) == status and kept_minor(street) == 6800 * (status == "confirmed")

    await wait_until(agrees, timeout_s=15, interval_s=0.03)
    assert await shop.audit() == {}


async def looked_again(street):
    """Two more looks have begun, so one of them is over."""
    before = len(street.stripe.calls)
    await wait_until(lambda: [path for _, path in street.stripe.calls[before:]].count("/v1/charges") > 1)


def reviews():
    return REGISTRY.get_sample_value("orders_reviews_total", {"reason": "unknown"}) or 0


async def _has(shop, reference, status):
    return await shop.status(reference) == status
