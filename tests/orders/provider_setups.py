"""The providers under test: how to bring each into a scenario, pay on its page, and sign its webhooks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import httpx
import orjson

from onsale.sandbox.webhooks import sign
from services.orders.providers import Sandbox
from shared.http.outgoing import ExternalClient
from shared.payment_provider import ChargeRequest, Provider, ProviderCharge
from shared.runtime.clock import now_s
from shared.security.tokens import b64, development_keys

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
        return sign(body, secret=secret or self.secret, at_s=int(now_s()) - late_s), body

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
