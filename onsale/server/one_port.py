"""The one port of `onsale up`: routes each request to a service of this process, as a load balancer would, by the same
table.

Each service's probes, metrics and docs are under `/{service}/…`; plain `/readyz` is true when all services are ready.
Metrics and readiness cost something and reveal something: they are only for requests from this machine or with an admin
key. Metrics are those of all processes of the suite.

An address that this process listens on, bound before it is served, and how connections to it are accepted. Imports
no server.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

import httpx
import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from onsale.errors import OperatorError
from shared.concurrency.coalescing import CachedReads
from shared.errors import problems
from shared.errors.problems import Problem
from shared.features import ProblemPage
from shared.routes import SERVICES, route
from shared.security.auth import AdminKeys
from shared.security.tokens import bearer, header_fields
from shared.web.answers import JSON, Answer, document, problem_answer
from shared.web.fast_routes import Found
from shared.web.listener import ServiceListener

OPERATIONS = frozenset({"/livez", "/version", "/openapi.json"})
GUARDED = frozenset({"/readyz", "/metrics"})
FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
METRICS_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
READINESS = httpx.Request("GET", "http://localhost/readyz")
READY_KEPT_S, READY_WITHIN_S = 0.5, 5.0


class OnePort:
    """An ASGI app that routes to the services' public apps. `started` answers what the suite still waits for before it
    is ready, `metrics` those of all its processes in Prometheus' text format.
    """

    def __init__(
        self, services: Mapping[str, ServiceListener], admin_keys: AdminKeys, *, started: Callable[[], list[str]],
        metrics: Callable[[], Awaitable[bytes]], problem_page: ProblemPage | None = None,
    ) -> None:  # fmt: skip
        self._services, self._admin_keys = services, admin_keys
        self._started, self._metrics, self._problem_page = started, metrics, problem_page
        self._reads: CachedReads[list[str]] = CachedReads(kept_s=READY_KEPT_S, keys_max=1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.begin(scope, receive)(scope, receive, send)

    def begin(self, scope: Scope, receive: Receive) -> Found:
        """As the listener of the service that answers."""
        path: str = scope["path"]
        first, _, rest = path[1:].partition("/")
        path_in_service = f"/{rest}" if first in self._services else path
        if path_in_service in GUARDED and not self._is_operator(scope):
            return document(problems.NotFound())
        if first in self._services and path_in_service == "/metrics":
            return self._all_metrics
        if first in self._services and path_in_service in OPERATIONS | GUARDED:
            scope["root_path"] = f"/{first}"  # the framework strips it from the path
            return self._services[first].begin(scope, receive)
        if (row := route(path)) is not None and row.service in self._services:
            return self._services[row.service].begin(scope, receive)
        if path == "/livez":
            return Answer(200, orjson.dumps({"live": True}), (JSON,))
        if path == "/readyz":
            return self._readiness
        return problem_answer(scope, problems.NotFound(), self._problem_page)

    async def _all_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Answer(200, await self._metrics(), (METRICS_TYPE,))(scope, receive, send)

    def _is_operator(self, scope: Scope) -> bool:
        """Whether the request comes directly from this machine, or has an admin key."""
        peer, passed_on = scope.get("client"), {name for name, _ in scope["headers"]} & FORWARDED
        if peer and ip_address(peer[0]).is_loopback and not passed_on:
            return True
        try:
            return bool(self._admin_keys.operator(bearer(header_fields(scope)) or ""))
        except Problem:
            return False

    async def _readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        waiting_for = [*await self._reads.get("not ready", self._not_ready), *self._started()]
        if waiting_for:
            answer = document(problems.Unavailable(f"Not ready: {', '.join(waiting_for)}.", failing=waiting_for))
        else:
            services = [name for name in SERVICES if name in self._services]
            answer = Answer(200, orjson.dumps({"ready": True, "services": services}), (JSON,))
        await answer(scope, receive, send)

    async def _not_ready(self) -> list[str]:
        """The services whose `/readyz` does not answer 200, as a load balancer would see it."""
        answers = await asyncio.gather(*map(_is_ready, self._services.values()))
        return [name for name, ready in zip(self._services, answers, strict=True) if not ready]


async def _is_ready(app: ASGIApp) -> bool:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            answer = await httpx.ASGITransport(app).handle_async_request(READINESS)
    except TimeoutError:
        return False
    return answer.status_code == 200


if TYPE_CHECKING:
    from starlette.types import ASGIApp

STOP_S = 3
ACCEPTED_AT_ONCE_MAX = 256
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Listener:
    """An app on an address. If `shared`, other processes listen there too, and the kernel distributes connections."""

    app: "ASGIApp"
    host: str
    port: int
    shared: bool = False
    grace_s: float = STOP_S

    def bind(self) -> socket.socket:
        """A socket on the address. It refuses connections until `listen`, so that no load balancer counts it too early.
        Raises `OperatorError` when the port is used.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            bound.bind((self.host, self.port))
        except OSError as taken:
            bound.close()
            raise OperatorError(f"Port {self.port} on {self.host} cannot be used: {taken.strerror}.") from taken
        bound.setblocking(False)
        return bound


class Acceptor:
    """Accepts connections to a listening socket, many in one turn of the event loop.

    uvloop itself accepts one a turn. The turns of a busy process are long, so newcomers waited for half a minute while
    those who were connected already were served.
    """

    def __init__(self, listening: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listening, self._protocol = listening, protocol
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[object]] = set()
        self._go_on()

    def close(self) -> None:
        """Refuses connections from now on; those that were accepted stay."""
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _go_on(self) -> None:
        if self._listening.fileno() >= 0:  # it may have been closed in a pause
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: the connection waits until there is one again
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE_S, self._go_on)
                return
            connection.setblocking(False)
            begun = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
            self._beginning.add(begun)
            begun.add_done_callback(self._beginning.discard)
