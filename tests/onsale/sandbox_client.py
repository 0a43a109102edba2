"""A running payment sandbox, a client that charges through it, and a shop that receives its webhooks."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from onsale.sandbox.endpoints import create_sandbox
from onsale.sandbox.settings import SandboxSettings, Tuning
from shared.http.outgoing import ExternalResponse
from tests.support.running.serving import parted
from tests.support.wait import wait_until

SECRET = "a secret for tests"
QUICK: dict[str, Any] = {
    "webhook_url": "http://shop/webhooks/sandbox",
    "webhook_secret": SECRET,
    "slow_s": 0.05,
    "hang_s": 0.05,
    "late_after_s": 0.02,
    "reorder_gap_s": 0.02,
    "webhook_retry_delays_s": (0.005,) * 7,
}


def _is_right(signature: str, body: bytes) -> bool:
    stamp, mac = (part.split("=")[1] for part in signature.split(","))
    right = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return mac == right and abs(time.time() - int(stamp)) < 60


class Shop:
    """Receives webhooks. It answers the statuses in `answers` first, then 200; an exception among them is raised. It
    answers nobody while `open` is not set.
    """

    def __init__(self) -> None:
        self.answers: list[int | Exception] = []
        self.received: list[tuple[str, bytes]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        assert (method, url) == ("POST", QUICK["webhook_url"])
        self.received.append((headers["Sandbox-Signature"], content or b""))
        await self.open.wait()
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return ExternalResponse(answer, {}, b"")

    def signed_rightly(self) -> list[bool]:
        """Of each webhook, whether its signature is of its time and its raw bytes, and of now."""
        return [_is_right(signature, body) for signature, body in self.received]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.received]

    def event_types(self) -> list[str]:
        return [event["type"] for event in self.events()]


class SandboxClient:
    """Calls the sandbox as the suite does."""

    def __init__(self, http: httpx.AsyncClient, shop: Shop | None = None) -> None:
        self.http, self.shop = http, shop or Shop()

    async def charge(self, method: str = "ok", *, key: str = "order-1:1", **changes: Any) -> httpx.Response:
        body = {"reference": "order-1", "amount_minor": 9350, "currency": "EUR", "method": method, **changes}
        return await self.http.post("/charges", json=body, headers={"Idempotency-Key": key})

    async def charged(self, method: str = "ok", **changes: Any) -> dict[str, Any]:
        answer = await self.charge(method, **changes)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def refund(self, charge: dict[str, Any], amount_minor: int, *, key: str = "refund-1") -> httpx.Response:
        body, headers = {"amount_minor": amount_minor}, {"Idempotency-Key": key}
        return await self.http.post(f"/charges/{charge['id']}/refunds", json=body, headers=headers)

    async def list_charges(self, **params: Any) -> list[dict[str, Any]]:
        return list((await self.http.get("/charges", params=params)).json()["charges"])

    async def cancel(self, charge: dict[str, Any]) -> httpx.Response:
        return await self.http.post(f"/charges/{charge['id']}/cancel")

    async def choose(self, charge: dict[str, Any], choice: str) -> httpx.Response:
        """Presses a button of the hosted page."""
        return await self.http.post(charge["checkout_url"], data={"choice": choice})

    async def read_charge(self, charge: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.http.get(f"/charges/{charge['id']}")).json())

    async def wait_for_status(self, charge: dict[str, Any], status: str) -> dict[str, Any]:
        async def reached() -> bool:
            return bool((await self.read_charge(charge))["status"] == status)

        await wait_until(reached)
        return await self.read_charge(charge)


@asynccontextmanager
async def sandbox(**changes: Any) -> AsyncIterator[SandboxClient]:
    """With a `webhook_url` webhooks go there, over real connections; without one `client.shop` receives them."""
    shop = Shop()
    tuning, rest = parted(Tuning, {**QUICK, **changes})
    app = create_sandbox(SandboxSettings(**rest), tuning, webhook_client=None if "webhook_url" in changes else shop)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://provider") as http,
    ):
        yield SandboxClient(http, shop)


def error_code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])
