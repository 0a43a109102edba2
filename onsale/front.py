"""The one port of a laptop: sends each request where a load balancer would, by the same table.

Each service's probes, metrics and docs stand under `/{service}/…`; plain `/readyz` is the conjunction of all. Metrics
and readiness are for operators, as they cost and tell something: for who asks from this machine, or with an admin key.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address

import orjson
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from shared import problems, refusal_page
from shared.auth import AdminKeys, bearer
from shared.problems import Problem
from shared.routes import SERVICES, Service, route

OPERATIONS = frozenset({"/livez", "/version", "/docs", "/docs/oauth2-redirect", "/openapi.json"})
GUARDED = frozenset({"/readyz", "/metrics"})
FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
READY_KEPT_S = 0.5


class Front:
    """An ASGI app in front of five others and their internal faces. `ready` says which parts are not ready: an empty
    list when all are.
    """

    def __init__(
        self, services: Mapping[Service, ASGIApp], inside: Mapping[Service, ASGIApp],
        ready: Callable[[], Awaitable[list[str]]], admin_keys: AdminKeys,
    ) -> None:  # fmt: skip
        self._services, self._inside = services, inside
        self._ready, self._admin_keys = ready, admin_keys
        self._waiting_for: list[str] = []
        self._known_until_s = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        first, _, rest = path[1:].partition("/")
        asked = f"/{rest}" if first in SERVICES else path
        if asked in GUARDED and not self._is_operator(scope):
            await _problem(send, problems.NotFound())
        elif first in SERVICES and asked == "/metrics":
            await self._metrics(first, scope, receive, send)
        elif first in SERVICES and asked in OPERATIONS | GUARDED:
            scope = {**scope, "root_path": f"/{first}"}  # the framework strips it from the path
            await self._services[first](scope, receive, send)
        elif (row := route(path)) is not None:
            await self._services[row.service](scope, receive, send)
        elif path == "/readyz":
            await self._conjunction(send)
        elif path == "/livez":
            await _answer(send, 200, orjson.dumps({"live": True}), "application/json")
        else:
            await _refuse(scope, send, problems.NotFound())

    def _is_operator(self, scope: Scope) -> bool:
        """From this machine and through nobody, or with a key."""
        peer, passed_on = scope.get("client"), {name for name, _ in scope["headers"]} & FORWARDED
        if peer and ip_address(peer[0]).is_loopback and not passed_on:
            return True
        try:
            return bool(self._admin_keys.operator(bearer(HTTPConnection(scope)) or ""))
        except Problem:
            return False

    async def _metrics(self, part: Service, scope: Scope, receive: Receive, send: Send) -> None:
        if part in self._inside:
            await self._inside[part]({**scope, "path": "/metrics", "raw_path": b"/metrics"}, receive, send)
        else:
            await _problem(send, problems.NotFound("Several processes: each has metrics of its own."))

    async def _conjunction(self, send: Send) -> None:
        if time.monotonic() > self._known_until_s:
            self._waiting_for, self._known_until_s = await self._ready(), time.monotonic() + READY_KEPT_S
        if waiting_for := self._waiting_for:
            await _problem(send, problems.Unavailable(f"Not ready: {', '.join(waiting_for)}.", failing=waiting_for))
        else:
            await _answer(send, 200, orjson.dumps({"ready": True, "services": list(SERVICES)}), "application/json")


async def _refuse(scope: Scope, send: Send, problem: Problem) -> None:
    """As a page for who came by a link."""
    if refusal_page.wanted(scope["method"], (v for k, v in scope["headers"] if k == b"accept")):
        page, fields = refusal_page.page(problem).encode(), refusal_page.headers(problem)
        await _answer(send, problem.code, page, refusal_page.MEDIA_TYPE, fields)
    else:
        await _problem(send, problem)


async def _problem(send: Send, problem: Problem) -> None:
    await _answer(send, problem.code, problem.body(), problems.MEDIA_TYPE, problem.headers())


async def _answer(send: Send, status: int, body: bytes, media_type: str, headers: dict[str, str] | None = None) -> None:
    fields = {"content-type": media_type, "content-length": str(len(body)), **(headers or {})}
    head = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
