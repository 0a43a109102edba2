"""The sandbox's doors: reads a request within its limits, asks the till, answers JSON. Plain routes, for speed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import httpx
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from onsale.sandbox.books import Books
from onsale.sandbox.charge import Charge, Refund
from onsale.sandbox.charges import CHOICES, Till
from onsale.sandbox.control import Knobs
from onsale.sandbox.hosted_page import HEADERS, page
from onsale.sandbox.problems import Refused
from onsale.sandbox.schemas import ChargeAsked, ControlAsked, RefundAsked, read
from onsale.sandbox.settings import SandboxSettings
from onsale.sandbox.webhooks import Sender, event

BODY_MAX_BYTES = 64 * 1024
KEY_MAX_CHARS = 255
PAGE_MAX_CHARGES = 1000

Endpoint = Callable[[Request], Awaitable[Response]]


def create_sandbox(
    settings: SandboxSettings | None = None, *, webhook_transport: httpx.AsyncBaseTransport | None = None
) -> Starlette:
    """The provider as an ASGI app; webhooks and late successes run while its lifespan does.

    Opens the books at once, and raises `BooksDamaged` if they cannot be read. Setting `app.state.closing` ends every
    answer that is being delayed.
    """
    settings = settings or SandboxSettings()
    books = Books(path=settings.books_path, charges_max=settings.charges_max)
    sender = Sender(settings, transport=webhook_transport)
    till = Till(settings=settings, books=books, sender=sender)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sender.start()
        till.open()
        yield
        till.close()
        await sender.close()
        books.close()

    closing = asyncio.Event()
    doors = Doors(settings=settings, books=books, sender=sender, till=till, closing=closing)
    handlers = {HTTPException: _no_such_call, Exception: _broken}
    app = Starlette(routes=doors.routes(), lifespan=lifespan, exception_handlers=handlers)
    app.state.closing = closing
    return app


class Doors:
    def __init__(
        self, *, settings: SandboxSettings, books: Books, sender: Sender, till: Till, closing: asyncio.Event
    ) -> None:
        self._settings = settings
        self._books = books
        self._sender = sender
        self._till = till
        self._closing = closing
        self._knobs = Knobs(latency_s=settings.latency_s)

    def routes(self) -> list[Route]:
        through = self._through
        return [
            Route("/charges", through(self._create), methods=["POST"]),
            Route("/charges", through(self._list), methods=["GET"]),
            Route("/charges/{charge_id}", through(self._show), methods=["GET"]),
            Route("/charges/{charge_id}/cancel", through(self._cancel), methods=["POST"]),
            Route("/charges/{charge_id}/capture", through(self._capture), methods=["POST"]),
            Route("/charges/{charge_id}/refunds", through(self._refund), methods=["POST"]),
            Route("/charges/{charge_id}/refunds", through(self._refunds), methods=["GET"]),
            Route("/pay/{charge_id}", through(self._show_page), methods=["GET"]),
            Route("/pay/{charge_id}", through(self._choose), methods=["POST"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/control", through(self._control, always_open=True), methods=["POST"]),
        ]

    def _through(self, endpoint: Endpoint, *, always_open: bool = False) -> Endpoint:
        """The one way in: past the knobs, and refusals become answers."""

        async def door(request: Request) -> Response:
            try:
                if not always_open:
                    self._knobs.check()
                return await endpoint(request)
            except Refused as refused:
                return _json(refused.answer(), status=refused.status, headers=refused.headers)
            except ClientDisconnect:
                return Response(status_code=400)

        return door

    async def _create(self, request: Request) -> Response:
        key = _key(request)
        asked = read(ChargeAsked, await _body(request))
        charge, replayed = self._till.take(asked, key=key, base_url=self._base_url(request))
        if not replayed and charge.status != "requires_action":
            await self._dawdle(request, charge)
        await self._pause(request, self._knobs.latency_s)
        return _created(charge.answer_at_first(), replayed=replayed)

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        limit = asked.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and int(limit)):
            raise Refused(422, "invalid_request", "limit: a number from 1.")
        charges, has_more = self._books.page(
            reference=asked.get("reference"), since=asked.get("since"), limit=min(int(limit), PAGE_MAX_CHARGES)
        )
        return _json({"charges": [charge.answer() for charge in charges], "has_more": has_more})

    async def _show(self, request: Request) -> Response:
        return _json(self._charge(request).answer())

    async def _cancel(self, request: Request) -> Response:
        return _json(self._till.cancel(request.path_params["charge_id"]).answer())

    async def _capture(self, request: Request) -> Response:
        return _json(self._till.capture(request.path_params["charge_id"]).answer())

    async def _refund(self, request: Request) -> Response:
        key = _key(request)
        asked = read(RefundAsked, await _body(request))
        refund, replayed = self._till.refund(request.path_params["charge_id"], asked, key=key)
        return _created(refund.answer(), replayed=replayed)

    async def _refunds(self, request: Request) -> Response:
        refunds: list[Refund] = self._books.refunds_of(self._charge(request).id)
        return _json({"refunds": [refund.answer() for refund in refunds]})

    async def _show_page(self, request: Request) -> Response:
        return HTMLResponse(page(self._charge(request)), headers=HEADERS)

    async def _choose(self, request: Request) -> Response:
        form = parse_qsl((await _body(request)).decode("ascii", "replace"))
        choice = CHOICES.get(dict(form).get("choice", ""))
        if choice is None:
            raise Refused(422, "invalid_request", "choice: pay, decline or cancel.")
        charge = self._till.choose(request.path_params["charge_id"], choice)
        if choice == "pay":
            await self._dawdle(request, charge)
        return RedirectResponse(charge.return_url or str(request.url), status_code=303, headers=HEADERS)

    async def _healthz(self, _: Request) -> Response:
        counts = {"charges": len(self._books), "webhooks_waiting": self._sender.waiting}
        return _json({"status": "ok", **counts, "webhooks_lost": self._sender.lost})

    async def _control(self, request: Request) -> Response:
        asked = read(ControlAsked, await _body(request))
        if asked.reset:
            self._till.reset()
            self._knobs = Knobs(latency_s=self._settings.latency_s)
            self._sender.deliver_late_s = 0.0
        self._knobs.turn(asked)
        if asked.deliver_late_s is not None:
            self._sender.deliver_late_s = asked.deliver_late_s
        if asked.forge_webhook is not None:
            forged = {**event("succeeded", {}, at=self._books.now()), **asked.forge_webhook}
            self._sender.offer(json.dumps(forged).encode(), forged=True)
        return _json({**self._knobs.positions(), "deliver_late_s": self._sender.deliver_late_s})

    async def _dawdle(self, request: Request, charge: Charge) -> None:
        """The money has moved; the answer takes its time, or does not come while the client waits."""
        delays_s = {"at_once": 0.0, "slow": self._settings.slow_s, "hang": self._settings.hang_s}
        await self._pause(request, delays_s[charge.behaviour.answer])

    async def _pause(self, request: Request, pause_s: float) -> None:
        """Wait, but not for a client that left nor in a server that stops."""
        if not pause_s:
            return
        ends = [asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(_left(request))]
        try:
            await asyncio.wait(ends, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _charge(self, request: Request) -> Charge:
        return self._books.charge(request.path_params["charge_id"])

    def _base_url(self, request: Request) -> str:
        return (self._settings.public_url or str(request.base_url)).rstrip("/")


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if not 0 < len(key) <= KEY_MAX_CHARS or not all("!" <= character <= "~" for character in key):
        raise Refused(400, "idempotency_key_missing", "Send an Idempotency-Key of 1 to 255 visible ASCII characters.")
    return key


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_MAX_BYTES:
            raise Refused(413, "body_too_large", "The body may have 64 KiB.", headers={"Connection": "close"})
        chunks.append(chunk)
    return b"".join(chunks)


def _created(answer: dict[str, Any], *, replayed: bool) -> Response:
    if replayed:
        return _json(answer, headers={"Idempotency-Replayed": "true"})
    return _json(answer, status=201)


def _json(answer: dict[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(answer), status_code=status, media_type="application/json", headers=headers)


async def _no_such_call(_: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 404
    return _json(Refused(status, "no_such_call", "There is no such call.").answer(), status=status)


async def _broken(_: Request, __: Exception) -> Response:
    return _json(Refused(500, "provider_error", "Something went wrong on our side.").answer(), status=500)
