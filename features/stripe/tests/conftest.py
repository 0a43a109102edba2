"""Orders that take payments by the sandbox and by a double of Stripe, which starts once for all tests of a process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from features.stripe import provider
from features.stripe.provider import Stripe
from features.stripe.tests import stripe_double
from features.stripe.tests.stripe_double import StripeDouble
from features.stripe.tests.stripe_endpoints import SECRET_KEY, StripeEndpoints
from shared.http.outgoing import ExternalClient, external_http_client
from shared.payment_provider import ProviderCharge
from tests.orders.conftest import (  # noqa: F401 - fixtures
    Environment,
    early_comparison,
    environment,
    inventory,
    processes,
    running,
    shop,
)
from tests.orders.provider_setups import RETURN_URL, ProviderSetup


@pytest.fixture(scope="session")
async def stripe_server(environment: Environment) -> AsyncIterator[StripeEndpoints]:  # noqa: F811
    endpoints = StripeEndpoints(StripeDouble())

    async def send_webhook(body: bytes, signature: str) -> None:
        await environment.shop.post("/webhooks/stripe", content=body, headers={"stripe-signature": signature})

    endpoints.books.send_webhook = send_webhook
    with pytest.MonkeyPatch.context() as patch:
        async with running(endpoints.app()) as url:
            patch.setattr(provider, "API_URL", url)
            yield endpoints


@pytest.fixture
def stripe(stripe_server: StripeEndpoints) -> StripeEndpoints:
    """The double, empty."""
    stripe_server.clear()
    return stripe_server


@pytest.fixture
def of_providers(stripe: StripeEndpoints) -> dict[str, Any]:
    return {
        "payment_providers": ("sandbox", Stripe.name), "stripe_secret_key": SECRET_KEY,
        "stripe_webhook_secrets": (stripe_double.WEBHOOK_SECRET,),
    }  # fmt: skip


class StripeSetup(ProviderSetup):
    event: ClassVar = {
        "type": "payment_intent.succeeded",
        "data": {"object": {"id": "pi_1", "object": "payment_intent", "metadata": {"reference": "ORDER1"}}},
    }
    secret = stripe_double.WEBHOOK_SECRET

    def __init__(self, client: ExternalClient, endpoints: StripeEndpoints) -> None:
        self.endpoints = endpoints
        scenarios: dict[str, dict[str, Any]] = {
            "ok": {"method": "card", "token": "pm_card_visa"},
            "decline": {"method": "card", "token": "pm_card_chargeDeclined"},
            "silent": {"method": "card", "token": "pm_hang_after_success"},
            "redirect": {"method": "redirect", "return_url": RETURN_URL},
        }
        secrets: dict[str, Any] = {
            "secret_key": SECRET_KEY,
            "webhook_secrets": ["whsec_of_before", stripe_double.WEBHOOK_SECRET],
        }
        super().__init__(lambda timeout_s: Stripe(client, provider.API_URL, timeout_s=timeout_s, **secrets), scenarios)

    async def fail_next_call(self, how: str) -> None:
        if how == "limited":
            self.endpoints.limit_next = 1
        else:
            self.endpoints.fail_next = 1

    async def pay(self, charge: ProviderCharge) -> None:
        assert self.endpoints.books.complete_page(charge.charge_ref) == RETURN_URL
        await asyncio.sleep(0)


@pytest.fixture
async def setup(stripe: StripeEndpoints) -> AsyncIterator[StripeSetup]:
    async with external_http_client(connections_max=8) as client:
        yield StripeSetup(client, stripe)
