"""The providers under test: how to bring each into a scenario, pay on its page, and sign its webhooks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import httpx
import orjson

from services.orders.providers.provider import ChargeRequest, Provider, ProviderCharge
from services.orders.providers.sandbox import Sandbox
from services.orders.providers.stripe import Stripe
from shared.http.outgoing import ExternalClient
from shared.runtime.clock import now_s
from shared.security.tokens import b64, development_keys
from tests.support.providers import stripe_double
from tests.support.providers.stripe_endpoints import SECRET_KEY, StripeEndpoints

LONG_TIMEOUT_S, SHORT_TIMEOUT_S = 10.0, 0.4
RETURN_URL = "https://tickets.example/o/ORDER1"
CHARGE = ChargeRequest(reference="ORDER1", key="ORDER1:1", amount_minor=6800, currency="EUR", method="")


@dataclass
class ProviderSetup(ABC):
    """One provider; `scenarios` has for each the fields of the charge request that causes it."""

    event: ClassVar[dict[str, Any]]
    secret: ClassVar[str]
    make: Callable[[float], Provider]
    scenarios: dict[str, dict[str, Any]]

    def __post_init__(self) -> None:
        self.provider = self.make(LONG_TIMEOUT_S)

    def request(self, scenario: str = "ok", **changes: Any) -> ChargeRequest:
        return replace(CHARGE, **(self.scenarios[scenario] | changes))

    async def create(self, scenario: str = "ok", **changes: Any) -> ProviderCharge:
        """The charge in this scenario. A silent provider gets a short timeout, on a connection opened before."""
        if scenario != "silent":
            return await self.provider.create(self.request(scenario, **changes))
        await self.provider.find("nobody's")
        return await self.make(SHORT_TIMEOUT_S).create(self.request(scenario, **changes))

    @abstractmethod
    async def fail_next_call(self, how: str) -> None:
        """The next call fails with 429 (`limited`) or at a broken proxy (`broken`)."""

    @abstractmethod
    async def pay(self, charge: ProviderCharge) -> None:
        """The fan pays on the hosted page."""

    def webhook(self, *, late_s: int = 0, secret: str | None = None) -> tuple[str, bytes]:
        """A webhook's signature and body."""
        body = orjson.dumps({"id": "evt_1", **self.event})
        return stripe_double.signed(body, secret=secret or self.secret, at_s=int(now_s()) - late_s), body

    @property
    def header(self) -> str:
        return f"{self.provider.name}-signature"


class SandboxSetup(ProviderSetup):
    secret = b64(next(iter(development_keys("sandbox-webhook").keys.values())))
    event: ClassVar = {"type": "charge.succeeded", "data": {"charge": {"id": "ch_1", "reference": "ORDER1"}}}

    def __init__(self, client: ExternalClient, url: str, http: httpx.AsyncClient) -> None:
        self.http, self.url = http, url
        scenarios: dict[str, dict[str, Any]] = {
            "ok": {"method": "ok"}, "decline": {"method": "decline"}, "silent": {"method": "timeout_after_success"},
            "redirect": {"method": "redirect", "return_url": RETURN_URL},
        }  # fmt: skip
        super().__init__(lambda timeout_s: Sandbox(client, url, secrets=[self.secret], timeout_s=timeout_s), scenarios)

    async def fail_next_call(self, how: str) -> None:
        behaviour = {"rate_limit_per_s": 0.001} if how == "limited" else {"down_for_s": 60}
        await self.http.post(f"{self.url}/control", json=behaviour)
        if how == "limited":
            await self.http.get(f"{self.url}/charges")

    async def pay(self, charge: ProviderCharge) -> None:
        assert charge.checkout_url is not None
        answer = await self.http.post(charge.checkout_url, data={"choice": "pay"})
        assert (answer.status_code, answer.headers["location"]) == (303, RETURN_URL)


class StripeSetup(ProviderSetup):
    event: ClassVar = {
        "type": "payment_intent.succeeded",
        "data": {"object": {"id": "pi_1", "object": "payment_intent", "metadata": {"reference": "ORDER1"}}},
    }
    secret = stripe_double.WEBHOOK_SECRET

    def __init__(self, client: ExternalClient, url: str, endpoints: StripeEndpoints) -> None:
        self.endpoints, self.url = endpoints, url
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
        super().__init__(lambda timeout_s: Stripe(client, url, timeout_s=timeout_s, **secrets), scenarios)

    async def fail_next_call(self, how: str) -> None:
        if how == "limited":
            self.endpoints.limit_next = 1
        else:
            self.endpoints.fail_next = 1

    async def pay(self, charge: ProviderCharge) -> None:
        assert self.endpoints.books.complete_page(charge.charge_ref) == RETURN_URL
        await asyncio.sleep(0)
