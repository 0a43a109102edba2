"""HTTP endpoints of the sandbox: read a request within limits, call the charge service, answer JSON.

Plain Starlette routes, for speed.

The hosted payment page: the amount and three buttons. Plain HTML, no script.

Faults that a test switches on with `POST /control`: outages, rate limits and delays.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from onsale.sandbox.charge import Charge, RequestRefused
from onsale.sandbox.charges import ChargeService, ChargeStore
from onsale.sandbox.settings import (
    DEFAULTS,
    ChargeRequest,
    ControlRequest,
    DisputeRequest,
    RefundRequest,
    SandboxSettings,
    Tuning,
    read,
)
from onsale.sandbox.webhooks import WebhookSender, event
from shared.http.outgoing import ExternalClient
from shared.rules.currencies import format_money
from shared.security.limits import Buckets


@dataclass(slots=True)
class FaultControls:
    """The faults in force; 0 means off. Times are of the monotonic clock."""

    latency_s: float = 0.0
    down_until_s: float = 0.0
    rate_limit_per_s: float = 0.0
    _calls: Buckets | None = None

    def apply(self, request: ControlRequest) -> None:
        """Changes the faults that the request names and no others."""
        now_s = time.monotonic()
        if request.down_for_s is not None:
            self.down_until_s = now_s + request.down_for_s
        if request.latency_s is not None:
            self.latency_s = request.latency_s
        if request.rate_limit_per_s is not None:
            self.rate_limit_per_s = request.rate_limit_per_s
            per_s = request.rate_limit_per_s
            self._calls = Buckets(per_s=per_s, burst=max(1, int(per_s)), keys_max=1) if per_s else None

    def settings(self) -> dict[str, float]:
        return {
            "down_for_s": round(max(0.0, self.down_until_s - time.monotonic()), 3),
            "rate_limit_per_s": self.rate_limit_per_s,
            "latency_s": self.latency_s,
        }

    def check(self) -> None:
        """Raises `RequestRefused` during an outage (503) or above the rate limit (429)."""
        now_s = time.monotonic()
        if now_s < self.down_until_s:
            raise _refusal(503, "unavailable", "The provider is not available.", self.down_until_s - now_s)
        if self._calls is not None and (wait_s := self._calls.take("all", now_s=now_s)):
            raise _refusal(429, "rate_limited", "Too many calls; slow down.", wait_s)


def _refusal(status: int, code: str, detail: str, wait_s: float) -> RequestRefused:
    return RequestRefused(status, code, detail, headers={"Retry-After": str(math.ceil(wait_s))})


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sandbox payment</title>
<style>
  body { font: 1.1rem/1.5 system-ui, sans-serif; max-width: 26rem; margin: 10vh auto; padding: 0 1rem; }
  strong { font-size: 2rem; display: block; }
  button, a { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: .8rem; margin: .6rem 0; }
</style>
<main>
  <h1>Sandbox payment</h1>
  <p>Order $reference <strong>$amount</strong> No real money moves here.</p>
  $rest
</main>
</html>
""")

BUTTONS = """<form method="post">
    <button name="choice" value="pay">Pay</button>
    <button name="choice" value="decline">Decline</button>
    <button name="choice" value="cancel">Cancel</button>
  </form>"""


def page(charge: Charge) -> str:
    if charge.status == "requires_action":
        rest = BUTTONS
    else:
        back = f'<a href="{escape(charge.return_url)}">Back to the shop</a>' if charge.return_url else ""
        rest = f'<p role="status">This payment is {charge.status}.</p>{back}'
    amount = format_money(charge.amount_minor, charge.currency)
    return PAGE.substitute(reference=escape(charge.reference), amount=amount, rest=rest)


BODY_MAX_BYTES = 64 * 1024
KEY_MAX_CHARS = 255
PAGE_MAX_CHARGES = 1000

Endpoint = Callable[[Request], Awaitable[Response]]


def create_sandbox(
    settings: SandboxSettings | None = None,
    tuning: Tuning = DEFAULTS,
    *,
    webhook_client: ExternalClient | None = None,
) -> Starlette:
    """The provider as an ASGI app. Opens the file of charges at once; raises `StoreDamaged` if it cannot be read."""
    settings = settings or SandboxSettings()
    store = ChargeStore(path=settings.books_path, charges_max=tuning.charges_max)
    sender = WebhookSender(settings, tuning, client=webhook_client)
    return app_of(ChargeService(settings, store, sender, tuning))


def app_of(charges: ChargeService) -> Starlette:
    """It sends late successes while its lifespan runs. Setting `app.state.closing` ends every answer that is being
    delayed.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with charges.sender.running():
            charges.open()
            yield
            charges.close()
        charges.store.close()

    closing = asyncio.Event()
    app = Starlette(routes=Endpoints(charges, closing).routes(), lifespan=lifespan, exception_handlers=HANDLERS)
    app.state.closing = closing
    return app


class Endpoints:
    """The routes of one sandbox."""

    def __init__(self, charges: ChargeService, closing: asyncio.Event) -> None:
        self._charges, self._closing = charges, closing
        self._settings, self._store, self._sender = charges.settings, charges.store, charges.sender
        self._faults = FaultControls(latency_s=self._settings.latency_s)

    def routes(self) -> list[Route]:
        guarded = self._guarded
        return [
            Route("/charges", guarded(self._create), methods=["POST"]),
            Route("/charges", guarded(self._list), methods=["GET"]),
            Route("/charges/{charge_id}", guarded(self._show), methods=["GET"]),
            Route("/charges/{charge_id}/cancel", guarded(self._cancel), methods=["POST"]),
            Route("/charges/{charge_id}/capture", guarded(self._capture), methods=["POST"]),
            Route("/charges/{charge_id}/refunds", guarded(self._refund), methods=["POST"]),
            Route("/charges/{charge_id}/refunds", guarded(self._refunds), methods=["GET"]),
            Route("/charges/{charge_id}/dispute", guarded(self._dispute), methods=["POST"]),
            Route("/pay/{charge_id}", guarded(self._show_page), methods=["GET"]),
            Route("/pay/{charge_id}", guarded(self._choose), methods=["POST"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/control", self._control, methods=["POST"]),
        ]

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint behind the faults."""

        async def guarded(request: Request) -> Response:
            self._faults.check()
            return await endpoint(request)

        return guarded

    async def _create(self, request: Request) -> Response:
        key = _key(request)
        body = read(ChargeRequest, await _body(request))
        base_url = (self._settings.public_url or str(request.base_url)).rstrip("/") if body.needs_page else ""
        charge, replayed = self._charges.create(body, key=key, base_url=base_url)
        if not replayed and charge.status != "requires_action":
            await self._delay_answer(request, charge)
        await self._pause(request, self._faults.latency_s)
        return _created(charge.answer_at_first(), replayed=replayed)

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and int(limit)):
            raise RequestRefused(422, "invalid_request", "limit: a number from 1.")
        charges, has_more = self._store.page(
            reference=query.get("reference"), since=query.get("since"), limit=min(int(limit), PAGE_MAX_CHARGES)
        )
        return _json({"charges": [charge.answer() for charge in charges], "has_more": has_more})

    async def _show(self, request: Request) -> Response:
        return _json(self._charge(request).answer())

    async def _cancel(self, request: Request) -> Response:
        return _json(self._charges.cancel(request.path_params["charge_id"]).answer())

    async def _capture(self, request: Request) -> Response:
        return _json(self._charges.capture(request.path_params["charge_id"]).answer())

    async def _refund(self, request: Request) -> Response:
        key = _key(request)
        body = read(RefundRequest, await _body(request))
        refund, replayed = self._charges.refund(request.path_params["charge_id"], body, key=key)
        return _created(refund.answer(), replayed=replayed)

    async def _refunds(self, request: Request) -> Response:
        refunds = self._store.refunds_of(self._charge(request).id)
        return _json({"refunds": [refund.answer() for refund in refunds]})

    async def _dispute(self, request: Request) -> Response:
        body = read(DisputeRequest, await _body(request))
        return _json(self._charges.dispute(request.path_params["charge_id"], body).answer())

    async def _show_page(self, request: Request) -> Response:
        return HTMLResponse(page(self._charge(request)), headers=HEADERS)

    async def _choose(self, request: Request) -> Response:
        form = dict(parse_qsl((await _body(request)).decode("ascii", "replace")))
        choice = form.get("choice", "")
        charge = self._charges.choose(request.path_params["charge_id"], choice)
        if choice == "pay":
            await self._delay_answer(request, charge)
        return RedirectResponse(charge.return_url or str(request.url), status_code=303, headers=HEADERS)

    async def _healthz(self, _: Request) -> Response:
        counts = {"charges": len(self._store), "webhooks_waiting": self._sender.waiting}
        return _json({"status": "ok", **counts, "webhooks_lost": self._sender.lost})

    async def _control(self, request: Request) -> Response:
        body = read(ControlRequest, await _body(request))
        if body.reset:
            self._charges.reset()
            self._faults = FaultControls(latency_s=self._settings.latency_s)
            self._sender.deliver_late_s = 0.0
        self._faults.apply(body)
        if body.deliver_late_s is not None:
            self._sender.deliver_late_s = body.deliver_late_s
        if body.forge_webhook is not None:
            forged = {**event("succeeded", {}, at=self._store.now()), **body.forge_webhook}
            self._sender.send(json.dumps(forged).encode(), forged=True)
        return _json({**self._faults.settings(), "deliver_late_s": self._sender.deliver_late_s})

    async def _delay_answer(self, request: Request, charge: Charge) -> None:
        """Waits after the money has moved: some methods answer slowly, or not while the client waits."""
        delays_s = {"at_once": 0.0, "slow": self._settings.slow_s, "hang": self._settings.hang_s}
        await self._pause(request, delays_s[charge.behaviour.answer])

    async def _pause(self, request: Request, pause_s: float) -> None:
        """Waits, but no longer than until the client leaves or the server stops."""
        if not pause_s:
            return
        ends = [asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(_client_left(request))]
        try:
            await asyncio.wait(ends, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _charge(self, request: Request) -> Charge:
        return self._store.charge(request.path_params["charge_id"])


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if not 0 < len(key) <= KEY_MAX_CHARS or not all("!" <= character <= "~" for character in key):
        raise RequestRefused(
            400, "idempotency_key_missing", "Send an Idempotency-Key of 1 to 255 visible ASCII characters."
        )
    return key


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_MAX_BYTES:
            raise RequestRefused(413, "body_too_large", "The body may have 64 KiB.", headers={"Connection": "close"})
        chunks.append(chunk)
    return b"".join(chunks)


def _created(answer: dict[str, Any], *, replayed: bool) -> Response:
    return _json(answer, headers={"Idempotency-Replayed": "true"}) if replayed else _json(answer, status=201)


def _json(answer: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(answer), status_code=status, media_type="application/json", headers=headers)


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestRefused)
    answer = {"error": {"code": problem.code, "message": problem.message}}
    return _json(answer, status=problem.status, headers=problem.headers)


async def _client_has_left(_: Request, __: Exception) -> Response:
    return Response(status_code=400)


async def _not_found(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 404
    return await _refused(request, RequestRefused(status, "no_such_call", "There is no such call."))


async def _internal_error(request: Request, _: Exception) -> Response:
    return await _refused(request, RequestRefused(500, "provider_error", "Something went wrong on our side."))


HANDLERS = {
    RequestRefused: _refused,
    ClientDisconnect: _client_has_left,
    HTTPException: _not_found,
    Exception: _internal_error,
}
