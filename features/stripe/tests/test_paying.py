"""Orders paid by Stripe, also while Stripe fails: they end confirmed and paid once, or unpaid."""

import pytest
from prometheus_client import REGISTRY

from features.stripe.tests.stripe_double import signed
from tests.orders.delivery.test_tickets import SHOW, apply_event_file
from tests.orders.inventory import EVENT
from tests.orders.shop import ROOT
from tests.support.wait import wait_until

RETURN_URL = "https://tickets.example/o/back"


@pytest.mark.usefixtures("early_comparison")
@pytest.mark.parametrize(
    ("token", "charges"),
    [("pm_card_visa", 1), ("pm_double", 2), ("pm_error_after_success", 1), ("pm_hang_after_success", 1)],
)
async def test_a_card_pays_once_also_if_the_response_is_lost(processes, stripe, token, charges):
    """There is no webhook. A second charge is refunded."""
    shop = await processes.open(provider_timeout_s=0.3)
    reference = await order_by_card(shop, token)
    await wait_for_end(shop, stripe, reference, "confirmed")
    assert len(intents(stripe)) == charges
    assert intents(stripe)[0]["metadata"] == {
        "reference": reference, "key": f"{reference}:1", "event_id": EVENT,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("by_another_card", "statuses"), [(True, ["requires_payment_method", "succeeded"]), (False, ["succeeded"])]
)
async def test_a_declined_fan_pays_by_another_card_or_later(shop, stripe, by_another_card, statuses):
    reference = await order_by_card(shop, "pm_card_chargeDeclined")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    order = await shop.view(reference)
    assert (order["status"], order["attempt"]["reason"]) == ("pending", "no_money")
    if by_another_card:
        retry = await shop.pay_again(reference, provider="stripe", method="card", token="pm_card_visa")
        assert retry.status_code == 202
    else:
        stripe.books.pay(intents(stripe)[0])
    await wait_for_end(shop, stripe, reference, "confirmed")
    assert [intent["status"] for intent in intents(stripe)] == statuses


async def test_a_fan_pays_on_the_stripe_page_after_a_decline(shop, stripe):
    """Each webhook comes three times, the last one first, and only causes a sync."""
    books = stripe.books
    books.copies, books.held = 3, []
    reference, page_id = await open_page(shop)
    assert (await shop.view(reference))["attempt"]["checkout_url"] == books.objects[page_id]["url"]
    books.complete_page(page_id, declined=True)
    await synced_again(stripe)
    assert await shop.attempt_is(reference, "requires_action"), "the page is still open"
    assert books.complete_page(page_id) == RETURN_URL
    for body in reversed(books.held):
        books.send(body)
    await wait_for_end(shop, stripe, reference, "confirmed")
    assert (await shop.view(reference))["attempt"]["checkout_url"] is None


@pytest.mark.parametrize(("is_paid", "end", "page"), [(False, "expired", "expired"), (True, "confirmed", "complete")])
async def test_an_expired_order_closes_its_stripe_page_unless_it_was_paid(processes, stripe, is_paid, end, page):
    """No webhook comes, and the deadline passes before the next sync."""
    shop = await processes.open(provider_sync_interval_s=60)
    reference, page_id = await open_page(shop)
    if is_paid:
        stripe.books.complete_page(page_id)
    await shop.expire(reference)
    await wait_for_end(shop, stripe, reference, end)
    assert stripe.books.objects[page_id]["status"] == page


async def test_a_page_closed_by_stripe_leaves_the_order_pending(shop, stripe):
    """A page without a payment is not among the charges, so it is fetched by its id."""
    reference, page_id = await open_page(shop)
    stripe.books.held = []
    stripe.books.expire({}, page_id)
    await wait_until(lambda: shop.attempt_is(reference, "cancelled"))
    assert await shop.status(reference) == "pending"


async def test_a_fan_is_sent_to_the_bank_for_authentication(shop, stripe):
    token, return_url = "pm_card_threeDSecure2Required", "https://tickets.example/o/{reference}"
    reference = await shop.order(method="card", provider="stripe", token=token, return_url=return_url)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    [intent] = intents(stripe)
    url = (await shop.view(reference))["attempt"]["checkout_url"]
    assert (url, intent["return_url"]) == (
        f"https://bank.example/{intent['id']}",
        f"https://tickets.example/o/{reference}",
    )
    stripe.books.pay(intent)
    await wait_for_end(shop, stripe, reference, "confirmed")


async def test_nothing_is_released_while_stripe_processes_a_payment(processes, stripe):
    """The payment cannot be cancelled, so the order waits, and goes to review past the limit."""
    shop = await processes.open(review_after_s=60.0)
    reference = await order_by_card(shop, "pm_processing")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    await wait_until(lambda: [path for _, path in stripe.calls if path.endswith("/cancel")])
    assert await shop.status(reference) == "pending"
    alerts = reviews()
    await shop.expire(reference, ago_s=100)
    await wait_until(lambda: shop.status_is(reference, "review"))
    assert reviews() == alerts + 1
    assert set(shop.inventory.steps) == {"begin-payment"}
    stripe.books.pay(intents(stripe)[0])
    await shop.wait_until_idle()  # the run that ended in review does not ask the provider again
    await shop.state.store.wake([reference])
    await wait_for_end(shop, stripe, reference, "confirmed")


async def test_webhooks_about_other_shops_are_accepted_and_not_stored(shop):
    """Another shop may use the same Stripe account."""
    body = b'{"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1", "metadata": {}}}}'
    answer = await shop.http.post("/webhooks/stripe", content=body, headers={"stripe-signature": signed(body)})
    assert answer.status_code == 200
    assert await shop.scalar("SELECT count(*) FROM orders.webhook_inbox") == 0


async def test_a_refund_in_the_dashboard_of_stripe_ends_the_order(shop, stripe):
    """Its webhook names the intent alone."""
    reference, intent = await bought_by_card(shop, stripe)
    stripe.books.create_refund({"payment_intent": intent["id"], "amount": "6800"})
    await wait_for_end(shop, stripe, reference, "refunded")
    assert (await shop.view(reference))["refunded_minor"] == 6800
    assert [entry[0] for entry in await shop.money_entries()] == ["charge", "refund"]
    assert await shop.scalar("SELECT count(*) FROM orders.ticket WHERE void_at IS NULL") == 0


async def test_a_dispute_at_stripe_is_learnt_from_a_webhook_that_names_the_intent(shop, stripe):
    reference, intent = await bought_by_card(shop, stripe)
    stripe.books.dispute(intent["id"], "needs_response")
    await wait_until(lambda: shop.status_is(reference, "review"))
    order = await shop.view(reference)
    assert (order["end_reason"], order["dispute"], order["disputed_minor"]) == ("disputed", "open", 6800)
    stripe.books.dispute(intent["id"], "under_review")
    stripe.books.dispute(intent["id"], "won")
    await wait_until(lambda: shop.status_is(reference, "confirmed"))
    order = await shop.view(reference)
    assert (order["dispute"], order["disputed_minor"]) == ("won", 0)
    assert [entry[0] for entry in await shop.money_entries()] == ["charge", "dispute", "reinstatement"]
    assert await shop.violated_invariants() == {}


async def test_an_inquiry_at_stripe_moves_no_money(shop, stripe):
    reference, intent = await bought_by_card(shop, stripe)
    stripe.books.dispute(intent["id"], "warning_needs_response")
    await wait_until(lambda: shop.status_is(reference, "review"))
    assert (await shop.view(reference))["disputed_minor"] == 0
    stripe.books.dispute(intent["id"], "warning_closed")
    await wait_until(lambda: shop.status_is(reference, "confirmed"))
    assert [entry[0] for entry in await shop.money_entries()] == ["charge"]


async def test_a_dispute_of_another_shop_is_accepted_and_not_stored(shop):
    dispute = b'{"id": "dp_1", "payment_intent": "pi_9", "metadata": {}}'
    body = b'{"id": "evt_2", "type": "charge.dispute.created", "data": {"object": %b}}' % dispute
    answer = await shop.http.post("/webhooks/stripe", content=body, headers={"stripe-signature": signed(body)})
    assert answer.status_code == 200
    assert await shop.scalar("SELECT count(*) FROM orders.webhook_inbox") == 0


@pytest.mark.parametrize(("name", "statement"), [
    ("Füchse & Łódź – Straße", "Fuchse & Lodz 1 May"), *(pytest.param(*each, marks=pytest.mark.proof) for each in [
        ("Night #1 <Arena> *Fan's*", "Night #1 Arena F 1 May"), ("演唱会 2027", f"{EVENT} 1 May"),
        ("ليلة الافتتاح", f"{EVENT} 1 May"), ("🎸🎸🎸", f"{EVENT} 1 May"),
    ]),
])  # fmt: skip
async def test_stripe_learns_event_date_and_reference_by_card_and_by_page(shop, stripe, name, statement):
    await apply_event_file(shop, name=name, starts_at="2027-05-01T20:00:00Z", timezone="UTC")
    reference, intent = await bought_by_card(shop, stripe)
    assert intent["description"] == f"{name}, 2027-05-01, {reference}"
    assert intent["statement_descriptor_suffix"] == statement
    assert (intent["metadata"]["event_id"], intent["metadata"]["reference"]) == (EVENT, reference)
    reference, page_id = await open_page(shop)
    assert stripe.books.objects[page_id]["product"] == f"{name}, 2027-05-01, {reference}"
    stripe.books.complete_page(page_id)
    assert intents(stripe)[-1]["statement_descriptor_suffix"] == statement


async def test_a_rehearsal_is_refused_unless_only_the_sandbox_takes_payments(processes):
    file = {**SHOW, "rehearsal": True}
    for providers, status in ((("sandbox", "stripe"), 409), (("sandbox",), 200)):
        shop = await processes.open(payment_providers=providers)
        answer = await shop.http.put(f"/admin/orders/events/{EVENT}", json=file, headers=ROOT)
        assert answer.status_code == status, answer.text


async def bought_by_card(shop, stripe):
    """A confirmed order with its tickets, and its intent."""
    reference = await order_by_card(shop, "pm_card_visa")
    await wait_for_end(shop, stripe, reference, "confirmed")
    return reference, intents(stripe)[0]


async def open_page(shop) -> tuple[str, str]:
    """An order whose fan is on the page of Stripe, and the page's id."""
    reference = await shop.order(method="redirect", provider="stripe", return_url=RETURN_URL)
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    return reference, (await shop.row(reference)).attempt.provider_ref


async def order_by_card(shop, token: str) -> str:
    return str(await shop.order(method="card", provider="stripe", token=token))


def stripe_objects(stripe, kind):
    return [each for each in stripe.books.objects.values() if each["object"] == kind]


def intents(stripe):
    return stripe_objects(stripe, "payment_intent")


def kept_minor(stripe):
    """Captured minus refunded at Stripe."""
    refunded = sum(refund["amount"] for refund in stripe_objects(stripe, "refund"))
    return sum(intent["amount_received"] for intent in intents(stripe)) - refunded


async def wait_for_end(shop, stripe, reference, status):
    async def agrees():
        return await shop.status(reference) == status and kept_minor(stripe) == 6800 * (status == "confirmed")

    await wait_until(agrees, timeout_s=15, interval_s=0.03)
    assert await shop.violated_invariants() == {}


async def synced_again(stripe):
    """Waits until two more syncs have begun, so one of them is done."""
    before = len(stripe.calls)
    await wait_until(lambda: [path for _, path in stripe.calls[before:]].count("/v1/charges") > 1)


def reviews():
    return REGISTRY.get_sample_value("orders_reviews_total", {"reason": "unknown"}) or 0
