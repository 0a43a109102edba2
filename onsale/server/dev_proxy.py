"""Reverse proxy of `onsale up`: one port that routes each request as a load balancer would, by the same table.

Each service's probes, metrics and docs are under `/{service}/…`; plain `/readyz` is true when all services are ready.
Metrics and readiness cost something and reveal something: they are only for requests from this machine or with an admin
key. Requests to a service in another process are streamed, and so are its answers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from ipaddress import ip_address

import httpx
import orjson
from cachetools import TTLCache
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.concurrency.tasks import stop
from shared.errors import problems
from shared.errors.problems import Problem
from shared.routes import SERVICES, Service, route
from shared.security.auth import AdminKeys
from shared.security.credentials import bearer, header_fields
from shared.web.exception_handlers import problem_response, send_problem
from shared.web.fast_routes import JSON, answer

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
NOT_COPIED = HOP_BY_HOP | {b"date"}  # the server in front of this app writes it
SAFE = frozenset({"GET", "HEAD"})


class RemoteService:
    """An ASGI app that forwards to a service in another process."""

    def __init__(self, client: httpx.AsyncClient, base_url: str) -> None:
        self._client, self._base_url = client, base_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1").removeprefix(scope.get("root_path", ""))
        query = scope["query_string"].decode("latin-1")
        url = f"{self._base_url}{path}" + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name not in HOP_BY_HOP]
        peer = scope.get("client")
        headers.append((b"x-forwarded-for", peer[0].encode() if peer else b"unknown"))
        if not any(name == b"accept-encoding" for name, _ in headers):  # httpx would take gzip for who cannot read it
            headers.append((b"accept-encoding", b"identity"))
        try:
            request = self._client.build_request(scope["method"], url, headers=headers, content=_body(receive))
            response = await self._try_send(request)
        except ClientDisconnect:
            return
        if response is None and scope["method"] in SAFE:  # one of several processes on this port may just have ended
            response = await self._try_send(self._client.build_request(scope["method"], url, headers=headers))
        if response is None:
            await send_problem(problems.Unavailable(), None, send)
            return
        try:
            await self._pass_back(response, receive, send)
        finally:
            await response.aclose()

    async def _try_send(self, request: httpx.Request) -> httpx.Response | None:
        try:
            return await self._client.send(request, stream=True)
        except httpx.TransportError:
            return None

    @staticmethod
    async def _pass_back(response: httpx.Response, receive: Receive, send: Send) -> None:
        """Copies the response until it ends or the client disconnects."""
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in NOT_COPIED]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})

        async def copy() -> None:
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = {asyncio.create_task(copy()), asyncio.create_task(disconnected())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await stop(tasks)


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect  # an end of the body would make this a complete request
        more = message.get("more_body", False)
        yield message.get("body", b"")


OPERATIONS = frozenset({"/livez", "/version", "/openapi.json"})
GUARDED = frozenset({"/readyz", "/metrics"})
FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
READY_KEPT_S = 0.5


class DevProxy:
    """An ASGI app that routes to the services' public apps, and to their internal ones for metrics. `ready` answers the
    parts that are not ready.
    """

    def __init__(
        self, services: Mapping[Service, ASGIApp], inside: Mapping[Service, ASGIApp],
        ready: Callable[[], Awaitable[list[str]]], admin_keys: AdminKeys,
    ) -> None:  # fmt: skip
        self._services, self._internal = services, inside
        self._ready, self._admin_keys = ready, admin_keys
        self._waiting_for: TTLCache[str, list[str]] = TTLCache(1, READY_KEPT_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        first, _, rest = path[1:].partition("/")
        path_in_service = f"/{rest}" if first in SERVICES else path
        if path_in_service in GUARDED and not self._is_operator(scope):
            await send_problem(problems.NotFound(), None, send)
        elif first in SERVICES and path_in_service == "/metrics":
            await self._metrics(first, scope, receive, send)
        elif first in SERVICES and path_in_service in OPERATIONS | GUARDED:
            scope = {**scope, "root_path": f"/{first}"}  # the framework strips it from the path
            await self._services[first](scope, receive, send)
        elif (row := route(path)) is not None:
            await self._services[row.service](scope, receive, send)
        elif path == "/readyz":
            await self._readiness(send)
        elif path == "/livez":
            await answer(send, 200, orjson.dumps({"live": True}), JSON)
        else:
            await problem_response(scope, problems.NotFound())(scope, receive, send)

    def _is_operator(self, scope: Scope) -> bool:
        """Whether the request comes directly from this machine, or has an admin key."""
        peer, passed_on = scope.get("client"), {name for name, _ in scope["headers"]} & FORWARDED
        if peer and ip_address(peer[0]).is_loopback and not passed_on:
            return True
        try:
            return bool(self._admin_keys.operator(bearer(header_fields(scope)) or ""))
        except Problem:
            return False

    async def _metrics(self, part: Service, scope: Scope, receive: Receive, send: Send) -> None:
        if part in self._internal:
            await self._internal[part]({**scope, "path": "/metrics", "raw_path": b"/metrics"}, receive, send)
        else:
            await send_problem(problems.NotFound("Several processes: each has metrics of its own."), None, send)

    async def _readiness(self, send: Send) -> None:
        waiting_for = self._waiting_for.get("waiting for")
        if waiting_for is None:
            waiting_for = self._waiting_for["waiting for"] = await self._ready()
        if waiting_for:
            problem = problems.Unavailable(f"Not ready: {', '.join(waiting_for)}.", failing=waiting_for)
            await send_problem(problem, None, send)
        else:
            await answer(send, 200, orjson.dumps({"ready": True, "services": list(SERVICES)}), JSON)
