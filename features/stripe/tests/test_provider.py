"""The peculiarities of Stripe: settings, idempotency keys that expire, paged lists, its own minor units."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from features.stripe import provider as stripe_provider
from features.stripe.provider import Stripe
from services.orders.providers import open_providers
from services.orders.settings import Settings
from shared.features import BadFeature
from shared.http.outgoing import external_http_client
from shared.payment_provider import NotSent, ProviderRejected, ProviderTimeout
from shared.runtime.clock import now_ms
from shared.web.parts import with_settings_of_parts
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
