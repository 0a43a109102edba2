"""The peculiarities of Stripe: settings, idempotency keys that expire, paged lists, its own minor units.

Stripe keeps what every provider promises.

Amounts that no provider charges are refused when they are applied, or in the quote, and never at the last step.
"""

import asyncio
import csv
import io
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from features.stripe import provider as stripe_provider
from features.stripe.orders import from_stripe, stripe_limits, to_stripe
from features.stripe.provider import Stripe
from services.orders.providers import open_providers
from services.orders.settings import Settings
from shared.contracts.inventory import ReservedItem
from shared.features import BadFeature
from shared.http.outgoing import external_http_client
from shared.payment_provider import NotSent, ProviderRejected, ProviderTimeout
from shared.rules.currencies import CURRENCIES, digits
from shared.runtime.clock import now_ms
from shared.web.parts import with_settings_of_parts
from tests.orders.conftest import OrdersProcesses
from tests.orders.payments.test_providers import *  # noqa: F403
from tests.orders.priced_event import Sale, open_sale
from tests.orders.shop import OPERATOR, VIEWER_SECRET, Shop, pass_header
from tests.support.running.suite import problem
from tests.support.wait import wait_until

SETTINGS = with_settings_of_parts(Settings, "orders")
CLIENT: Any = None


def test_stripe_without_its_secrets_is_refused_at_the_start(monkeypatch):
    monkeypatch.setenv("ORDERS_PAYMENT_PROVIDERS", "sandbox, stripe")
    for variable in ("ORDERS_STRIPE_SECRET_KEY", "ORDERS_STRIPE_WEBHOOK_SECRETS"):
        with monkeypatch.context() as one:
            one.setenv(variable, "one alone")
            with pytest.raises(BadFeature, match="stripe_secret_key and stripe_webhook_secrets"):
                open_providers(CLIENT, SETTINGS())
    monkeypatch.setenv("ORDERS_STRIPE_SECRET_KEY", "sk_test")
    monkeypatch.setenv("ORDERS_STRIPE_WEBHOOK_SECRETS", "whsec_1,whsec_2")
    settings = SETTINGS()
    assert [*open_providers(CLIENT, settings)] == ["sandbox", "stripe"]
    assert "sk_test" not in repr(settings)


def test_stripe_that_is_switched_off_takes_no_payments():
    with pytest.raises(BadFeature, match="no provider named stripe; there are sandbox"):
        open_providers(CLIENT, SETTINGS(payment_providers=("stripe",), features_off={"stripe"}))


def test_where_it_is_not_named_its_library_is_not_imported():
    code = """
import sys
from services.orders import app, providers

providers.open_providers(None, app.create_app().state.settings)
print("features.stripe.orders" in sys.modules, "stripe" in sys.modules)
"""
    environ = {**os.environ, "ORDERS_SANDBOX_LIMITS": "stripe"}
    ran = subprocess.run([sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout == "True False\n"


async def test_a_call_repeated_while_the_first_runs_waits_for_it(setup):
    """Stripe answers a repeated call with 409 while the first one is running."""
    first = asyncio.ensure_future(setup.create("silent"))
    await wait_until(lambda: ("POST", "/v1/payment_intents") in setup.endpoints.calls)
    with pytest.raises(ProviderTimeout):
        await setup.create("silent")
    with pytest.raises(ProviderTimeout):
        await first


async def test_a_refund_is_made_once_although_stripe_forgot_its_key(setup):
    charge = await setup.create()
    first = await setup.provider.refund(charge.charge_ref, amount_minor=100, key="k")
    setup.endpoints.forget_keys()
    assert await setup.provider.refund(charge.charge_ref, amount_minor=100, key="k") == first


async def test_all_pages_of_charges_are_read_once(setup):
    books = setup.endpoints.books
    ours = {"transfer_group": "R", "metadata": {"reference": "R", "key": "k"}}
    for _ in range(205):
        books.pay(books.intent(ours, amount=1, currency="eur"))
    books.pay(books.intent({"metadata": {}}, amount=1, currency="eur"))
    listed = [charge.charge_ref for charge in await setup.provider.list_since(now_ms() - 60_000)]
    assert (len(listed), len(set(listed))) == (205, 205)


async def test_amounts_are_converted_to_the_minor_units_of_stripe(setup):
    for currency, amount_at_stripe in (("ISK", 50_000), ("JPY", 500), ("EUR", 500), ("MGA", 5)):
        charge = await setup.create(amount_minor=500, currency=currency, key=currency)
        assert (charge.amount_minor, charge.currency) == (500, currency)
        assert setup.endpoints.books.objects[charge.charge_ref]["amount"] == amount_at_stripe


async def test_a_card_that_needs_authentication_is_declined_without_a_return_url(setup):
    token = "pm_card_threeDSecure2Required"
    declined = await setup.create(token=token, key="1")
    assert (declined.status, declined.reason) == ("failed", "authentication_required")
    charge = await setup.create(token=token, key="2", return_url="https://tickets.example/back")
    assert (charge.status, charge.checkout_url) == ("requires_action", f"https://bank.example/{charge.charge_ref}")


async def test_a_request_without_token_or_return_url_is_refused_before_the_call(setup):
    for incomplete in ({"method": "card", "token": None}, {"method": "redirect", "return_url": None}):
        with pytest.raises(ProviderRejected, match="missing"):
            await setup.create(**incomplete)
    assert setup.endpoints.calls == []


async def test_a_wrong_secret_key_means_that_nothing_was_sent(setup):
    async with external_http_client(connections_max=8) as client:
        provider = Stripe(client, stripe_provider.API_URL, secret_key="sk_wrong", webhook_secrets=[], timeout_s=10.0)
        with pytest.raises(NotSent, match="credentials"):
            await provider.create(setup.request())


@pytest.fixture
async def strict(processes: OrdersProcesses) -> Shop:
    """Only the sandbox, which takes the same amounts as Stripe."""
    return await processes.open(payment_providers=("sandbox",), sandbox_limits="stripe")


def seats(unit_price_minor: int, quantity: int = 1) -> ReservedItem:
    return ReservedItem(section_id="GA1", quantity=quantity, unit_price_minor=unit_price_minor)


def refused(answer: httpx.Response, *words: str) -> None:
    assert problem(answer) == (422, "invalid-request"), answer.text
    assert all(word in answer.json()["detail"] for word in words), answer.text


@pytest.mark.parametrize(
    ("currency", "price_minor", "words"),
    [
        ("KWD", 5_125, ("sections.0.price_minor", "KWD 5.125 is no multiple of KWD 0.010")),
        ("USD", 20, ("sections.0", "USD 0.20 is less than USD 0.50")),
        ("GBP", 29, ("GBP 0.29 is less than GBP 0.30",)),
        ("JPY", 49, ("JPY 49 is less than JPY 50",)),
        ("HUF", 17_499, ("HUF 174.99 is less than HUF 175.00",)),
        ("EUR", 100_000_000, ("EUR 1,000,000.00 is more than EUR 999,999.99",)),
        ("ISK", 1_000_000, ("ISK 1,000,000 is more than ISK 999,999",)),
        ("MGA", 150_050, ("MGA 1,500.50 is no multiple of MGA 1.00",)),
    ],
)
async def test_a_price_that_stripe_never_takes_is_refused_with_the_event(
    strict: Shop, currency: str, price_minor: int, words: tuple[str, ...]
) -> None:
    refused(await Sale(strict).apply_event_file(currency=currency, price_minor=price_minor), *words)


@pytest.mark.parametrize(
    ("currency", "price_minor"),
    [("KWD", 5_130), ("USD", 50), ("USD", 0), ("JPY", 50), ("IDR", 100_000_000), ("RSD", 1)],
)
async def test_what_stripe_takes_is_applied(strict: Shop, currency: str, price_minor: int) -> None:
    answer = await Sale(strict).apply_event_file(currency=currency, price_minor=price_minor)
    assert answer.status_code == 200, answer.text


async def test_the_check_counts_every_configured_provider(shop: Shop) -> None:
    """The sandbox takes anything, Stripe does not: a fan may choose it."""
    refused(await Sale(shop).apply_event_file(currency="KWD", price_minor=5_125), "stripe cannot charge it")


async def test_fees_and_codes_in_three_digits_are_multiples_of_ten(strict: Shop) -> None:
    fee = {"name": "Booking", "per": "ticket", "amount_minor": 155}
    answer = await Sale(strict).apply_event_file(currency="KWD", price_minor=5_130, fees=[fee])
    refused(answer, "fees.0.amount_minor", "KWD 0.155 is no multiple of KWD 0.010")
    sale = Sale(strict)
    answer = await sale.apply_event_file(
        currency="KWD", price_minor=5_130, fees=[{"name": "x", "per": "order", "percent": "3.3"}]
    )
    assert answer.status_code == 200, "a percentage is rounded to what can be charged"
    refused(await sale.admin_request("PUT", "/promo-codes/OFF", body={"amount_minor": 125}), "KWD 0.125 is no multiple")
    await sale.put_code("OFF", amount_minor=120)
    quote = await sale.quote(await sale.hold(seats(5_130, 3), currency="KWD"), "off")
    total_minor = quote.json()["total_minor"]
    assert total_minor == 15_270 + 500
    answer = await sale.order(await sale.hold(seats(5_130, 3), currency="KWD"), total_minor, "OFF", currency="KWD")
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    await sale.wait_for_status(reference, "confirmed")
    answer = await strict.admin_post(f"{reference}/refund", amount_minor=1_005, reason="rain", key="odd")
    assert (problem(answer), "multiples of 10" in answer.text) == ((409, "refund-refused"), True)
    assert (
        await strict.admin_post(f"{reference}/refund", amount_minor=1_010, reason="rain", key="even")
    ).status_code == 202


async def test_a_discount_that_leaves_too_little_is_refused_in_the_quote(strict: Shop) -> None:
    sale = Sale(strict)
    assert (await sale.apply_event_file(currency="USD", price_minor=500)).status_code == 200
    await sale.put_code("NEARLY", amount_minor=480)
    await sale.put_code("FREE", percent=100)
    held = await sale.hold(seats(500), currency="USD")
    quote = await sale.quote(held, "NEARLY")
    assert problem(quote) == (422, "amount-not-payable")
    assert "USD 0.20 is less than USD 0.50" in quote.json()["detail"]
    ordered = await sale.order(held, 20, "NEARLY", currency="USD")
    assert problem(ordered) == (422, "amount-not-payable")
    assert await strict.inventory.status(held) == "pending_payment"
    two = await sale.hold(seats(500, 2), currency="USD")
    assert (await sale.quote(two, "NEARLY")).json()["total_minor"] == 520
    assert (await sale.quote(held, "FREE")).json()["total_minor"] == 0
    answer = await sale.order(held, 0, "FREE", currency="USD")
    assert answer.status_code == 202, answer.text
    await sale.wait_for_status(answer.json()["reference"], "confirmed")
    assert await strict.charges() == []


async def test_a_total_that_only_another_provider_takes_is_refused_with_the_order(shop: Shop) -> None:
    sale = await open_sale(shop)
    held = await sale.hold(seats(20))
    assert (await sale.quote(held)).json()["total_minor"] == 20
    body = shop.body(held, total_minor=20) | {"payment": {"provider": "stripe", "method": "card", "token": "pm_card"}}
    answer = await sale.post(body)
    assert problem(answer) == (422, "amount-not-payable")
    assert "stripe cannot charge the total" in answer.json()["detail"]
    assert (await sale.order(held, 20)).status_code == 202


async def test_what_was_applied_before_a_provider_was_configured_is_found(processes: OrdersProcesses) -> None:
    earlier = await processes.open(payment_providers=("sandbox",))
    sale = Sale(earlier)
    fee = {"name": "Booking", "per": "ticket", "amount_minor": 155}
    assert (await sale.apply_event_file(currency="KWD", price_minor=5_125, fees=[fee])).status_code == 200
    await sale.put_code("ODD", amount_minor=1_001)
    now = Sale(await processes.open(), sale.event_id)
    answer = await now.admin_request("GET", "/amounts?each=5125&each=6000", secret=VIEWER_SECRET)
    assert [sentence.partition(":")[0] for sentence in answer.json()["refusals"]] == [
        "fees.0.amount_minor", "a ticket of KWD 5.125", "a ticket of KWD 6.000", "promo code ODD",
    ]  # fmt: skip
    unknown = await Sale(earlier).admin_request("GET", "/amounts", secret=VIEWER_SECRET)
    assert problem(unknown) == (404, "unknown-event")


@pytest.mark.parametrize("code", CURRENCIES)
def test_amounts_go_to_stripe_and_back(code: str) -> None:
    limits = stripe_limits(code)
    for amount in (limits.least_minor, limits.most_minor // limits.step_minor * limits.step_minor):
        assert from_stripe(to_stripe(amount, code), code) == amount
        assert limits.refusal(amount, code) is None
    assert limits.refusal(limits.least_minor - limits.step_minor, code)
    assert limits.refusal(limits.most_minor + 1, code)
    assert digits(code) != 3 or limits.refusal(limits.least_minor + 1, code)


@pytest.mark.parametrize(
    "payment", [{"provider": "sandbox", "method": "decline"}, {"provider": "stripe", "method": "card"}]
)
async def test_a_free_order_passes_every_check_of_amounts(shop: Shop, payment: dict[str, str]) -> None:
    """No provider is asked, whatever it takes, and every report has the order with amounts of 0."""
    sale = await open_sale(shop, fees=[{"name": "Booking fee", "per": "order", "amount_minor": 150}])
    await sale.put_code("GUEST", percent=100)
    held = await sale.hold(seats(5_000, 2))
    assert (await sale.quote(held, "guest")).json()["total_minor"] == 0
    answer = await sale.post(shop.body(held, total_minor=0) | {"promo_code": "guest", "payment": payment})
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    order = await sale.wait_for_status(reference, "confirmed")
    amounts = ("total_minor", "charged_minor", "refunded_minor", "refunding_minor")
    assert [order[name] for name in amounts] == [0, 0, 0, 0]
    headers = pass_header("fan", event_id=sale.event_id)
    receipt = await shop.http.get(f"/orders/{reference}/receipt.pdf", headers=headers)
    assert (receipt.status_code, receipt.content[:5]) == (200, b"%PDF-")
    path = f"/admin/orders/export.csv?event_id={sale.event_id}"
    (row,) = csv.DictReader(io.StringIO((await shop.http.get(path, headers=OPERATOR)).text))
    assert [row[name] for name in ("total_minor", "charged_minor", "refunded_minor")] == ["0", "0", "0"]
    charges = await sale.admin_request("GET", "/charges", secret=VIEWER_SECRET)
    assert charges.json()["charges"] == await shop.money_entries() == []
    invariants = (await sale.admin_request("GET", "/audit", secret=VIEWER_SECRET)).json()["invariants"]
    assert [one["invariant"] for one in invariants if not one["holds"]] == []
