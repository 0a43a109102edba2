"""The HTTP of Stripe's double: forms in, JSON out, keys that make calls repeatable, and bad days.

Of tokens the doors know two: `pm_error_after_success` is answered 500 and, as Stripe does, 500 again under the same
key; `pm_hang_after_success` is not answered while the caller waits. `limit_next` calls get 429, `fail_next` a bad
gateway.
"""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.providers.stripe_double import Json, Refusal, StripeDouble

SECRET_KEY = "sk_test_double"
HANG_MAX_S = 2.0
Call = Callable[..., Json]


class StripeEndpoints:
    """The books, asked over the wire."""

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
        """As after a day."""
        self._answers: dict[str, tuple[Json, int, bytes]] = {}

    def app(self) -> Starlette:
        books, intents, pages = self.books, "/v1/payment_intents", "/v1/checkout/sessions"
        calls: list[tuple[str, str, Call]] = [
            ("POST", intents, books.create_intent), ("GET", intents, books.list_intents),
            ("GET", f"{intents}/{{of}}", books.retrieve), ("POST", f"{intents}/{{of}}/cancel", books.cancel_intent),
            ("POST", f"{intents}/{{of}}/capture", books.capture), ("POST", pages, books.create_page),
            ("GET", f"{pages}/{{of}}", books.retrieve), ("POST", f"{pages}/{{of}}/expire", books.expire),
            ("GET", "/v1/charges", books.list_charges), ("POST", "/v1/refunds", books.create_refund),
            ("GET", "/v1/refunds", books.list_refunds),
        ]  # fmt: skip
        return Starlette(routes=[Route(path, self._endpoint(call), methods=[method]) for method, path, call in calls])

    def _endpoint(self, call: Call) -> Callable[[Request], Awaitable[Response]]:
        async def door(request: Request) -> Response:
            self.calls.append((request.method, request.url.path))
            try:
                self._let_in(request)
                raw = (await request.body()).decode() or request.url.query
                asked = nested(parse_qsl(raw, keep_blank_values=True))
                if request.method == "GET":
                    return _json(self._expanded(call(asked, **request.path_params), asked))
                return await self._once(request.headers["idempotency-key"], call, asked, request.path_params)
            except Refusal as refusal:
                return _json({"error": refusal.error}, refusal.status)

        return door

    def _let_in(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {SECRET_KEY}":
            raise Refusal(401, "invalid_request_error", "api_key_invalid")
        if self.limit_next:
            self.limit_next -= 1
            raise Refusal(429, "invalid_request_error", "rate_limit")
        if self.fail_next:
            self.fail_next -= 1
            raise Refusal(502, "api_error", "bad_gateway")

    async def _once(self, key: str, call: Call, asked: Json, path_params: Json) -> Response:
        """The first answer of a key is given again, whatever it was; a refusal before anything began is not kept."""
        if key in self._running:
            raise Refusal(409, "idempotency_error", "idempotency_key_in_use")
        if key in self._answers:
            same, status, body = self._answers[key]
            if same != asked | path_params:
                raise Refusal(400, "idempotency_error", "idempotency_key_reused")
            return Response(body, status, headers={"idempotent-replayed": "true"})
        self._running.add(key)
        try:
            status, answer = self._done(call, asked, path_params)
            self._answers[key] = asked | path_params, status, orjson.dumps(answer)
            if asked.get("payment_method") == "pm_hang_after_success":
                await asyncio.sleep(HANG_MAX_S)
            return _json(answer, status)
        finally:
            self._running.discard(key)

    def _done(self, call: Call, asked: Json, path_params: Json) -> tuple[int, Json]:
        try:
            answer = self._expanded(call(asked, **path_params), asked)
        except Refusal as refusal:
            return refusal.status, {"error": refusal.error}
        if asked.get("payment_method") == "pm_error_after_success":
            return 500, {"error": {"type": "api_error", "message": "oh"}}
        return 200, answer

    def _expanded(self, answer: Json, asked: Json) -> Json:
        for path in asked.get("expand", {}).values():
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
    """`a[b][0]=c` as Stripe reads it."""
    whole: Json = {}
    for name, value in pairs:
        *path, last = name.replace("]", "").split("[")
        at = whole
        for part in path:
            at = at.setdefault(part, {})
        at[last or str(len(at))] = value
    return whole


def _json(answer: Json, status: int = 200) -> Response:
    return Response(orjson.dumps(answer), status, media_type="application/json")
