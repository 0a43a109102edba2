"""Orders that take payments by the sandbox and by a double of Stripe, which starts once for all tests of a process.

The HTTP API of the Stripe double: forms in, JSON out, idempotency keys, and failures on demand.

Two payment methods act here: `pm_error_after_success` is answered 500 and, as Stripe does, 500 again under the same
key; `pm_hang_after_success` is answered after `HANG_MAX_S`. The next `limit_next` calls get 429, the next `fail_next`
a 502.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from features.stripe import provider
from features.stripe.provider import Stripe
from features.stripe.tests import stripe_double
from features.stripe.tests.stripe_double import Json, StripeDouble, StripeError
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

SECRET_KEY = "sk_test_double"
HANG_MAX_S = 2.0
Call = Callable[..., Json]


class StripeEndpoints:
    """Serves the objects of a `StripeDouble`."""

    def __init__(self, books: StripeDouble) -> None:
        self.books = books
        self.clear()

    def clear(self) -> None:
        self.books.clear()
        self.calls: list[tuple[str, str]] = []
        self.limit_next = self.fail_next = 0
        self.forget_keys()
        self._running: set[str] = set()

    def forget_keys(self) -> None:
        """Forgets all idempotency keys, as Stripe does after a day."""
        self._answers: dict[str, tuple[Json, int, bytes]] = {}

    def app(self) -> Starlette:
        books, intents, pages = self.books, "/v1/payment_intents", "/v1/checkout/sessions"
        calls: list[tuple[str, str, Call]] = [
            ("POST", intents, books.create_intent), ("GET", intents, books.list_intents),
            ("GET", f"{intents}/{{of}}", books.retrieve), ("POST", f"{intents}/{{of}}/cancel", books.cancel_intent),
            ("POST", f"{intents}/{{of}}/capture", books.capture), ("POST", pages, books.create_page),
            ("GET", f"{pages}/{{of}}", books.retrieve), ("POST", f"{pages}/{{of}}/expire", books.expire),
            ("GET", "/v1/charges", books.list_charges), ("POST", "/v1/refunds", books.create_refund),
            ("GET", "/v1/refunds", books.list_refunds), ("GET", "/v1/disputes", books.list_disputes),
        ]  # fmt: skip
        return Starlette(routes=[Route(path, self._endpoint(call), methods=[method]) for method, path, call in calls])

    def _endpoint(self, call: Call) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            self.calls.append((request.method, request.url.path))
            try:
                self._check(request)
                raw = (await request.body()).decode() or request.url.query
                params = nested(parse_qsl(raw, keep_blank_values=True))
                if request.method == "GET":
                    return _json(self._expanded(call(params, **request.path_params), params))
                return await self._once(request.headers["idempotency-key"], call, params, request.path_params)
            except StripeError as failure:
                return _json({"error": failure.error}, failure.status)

        return endpoint

    def _check(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {SECRET_KEY}":
            raise StripeError(401, "invalid_request_error", "api_key_invalid")
        if self.limit_next:
            self.limit_next -= 1
            raise StripeError(429, "invalid_request_error", "rate_limit")
        if self.fail_next:
            self.fail_next -= 1
            raise StripeError(502, "api_error", "bad_gateway")

    async def _once(self, key: str, call: Call, params: Json, path_params: Json) -> Response:
        """Repeats the first answer of a key, whatever it was; an error before the call began is not stored."""
        if key in self._running:
            raise StripeError(409, "idempotency_error", "idempotency_key_in_use")
        if key in self._answers:
            first_params, status, body = self._answers[key]
            if first_params != params | path_params:
                raise StripeError(400, "idempotency_error", "idempotency_key_reused")
            return Response(body, status, headers={"idempotent-replayed": "true"})
        self._running.add(key)
        try:
            status, answer = self._run(call, params, path_params)
            self._answers[key] = params | path_params, status, orjson.dumps(answer)
            if params.get("payment_method") == "pm_hang_after_success":
                await asyncio.sleep(HANG_MAX_S)
            return _json(answer, status)
        finally:
            self._running.discard(key)

    def _run(self, call: Call, params: Json, path_params: Json) -> tuple[int, Json]:
        try:
            answer = self._expanded(call(params, **path_params), params)
        except StripeError as failure:
            return failure.status, {"error": failure.error}
        if params.get("payment_method") == "pm_error_after_success":
            return 500, {"error": {"type": "api_error", "message": "oh"}}
        return 200, answer

    def _expanded(self, answer: Json, params: Json) -> Json:
        for path in params.get("expand", {}).values():
            answer = self._with(answer, path.split("."))
        return answer

    def _with(self, row: Json, path: list[str]) -> Json:
        first, *rest = path
        inner = row.get(first)
        if isinstance(inner, list):
            return row | {first: [self._with(each, rest) for each in inner]}
        inner = self.books.objects[inner] if isinstance(inner, str) else inner
        return row | {first: self._with(inner, rest) if rest and inner else inner}


def nested(pairs: list[tuple[str, str]]) -> Json:
    """Parses names such as `a[b][0]` into nested objects."""
    root: Json = {}
    for name, value in pairs:
        *path, last = name.replace("]", "").split("[")
        parent = root
        for part in path:
            parent = parent.setdefault(part, {})
        parent[last or str(len(parent))] = value
    return root


def _json(answer: Json, status: int = 200) -> Response:
    return Response(orjson.dumps(answer), status, media_type="application/json")


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
