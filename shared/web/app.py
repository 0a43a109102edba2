"""The shell every service stands in: problem documents, request ids, limits, probes, metrics, and two faces.

`/internal` and `/metrics` answer only on the internal listener and everything else only on the public one:
`public(app)` and `internal(app)` are the two faces of one app. A lifespan puts what it opens on `app.state`. Before the
listeners close, `drain(app)` makes readiness false and runs what a service put into `app.state.on_drain` (long streams
end there).
"""

import asyncio
import itertools
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from prometheus_client import Histogram
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.runtime.descriptors import descriptors_max, descriptors_open
from shared.runtime.load_meter import LoadMeter
from shared.runtime.logging import data
from shared.runtime.metrics import CONTENT_TYPE_LATEST, REQUESTS, generate_latest
from shared.runtime.settings import ServiceSettings
from shared.security.auth import neighbours_only
from shared.security.key_reload import with_keys
from shared.web import problems
from shared.web.exception_handlers import REQUEST_ID_KEY, answer_with_problems, send_problem
from shared.web.fast_routes import QUIET_KEY, STARTED_KEY, HotLane, internal_hot_route

log = logging.getLogger("onsale.http")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Checks = Mapping[str, Callable[[], Awaitable[object]]]
VERSION = "0.1.0"
READY_DEADLINE_S = 2.0
READY_KEPT_S = 0.5
INSIDE = ("/internal", "/metrics")
ANSWER_HEADERS_KEY = "onsale.answer_headers"  # what a door adds to whatever is answered, a problem included
RECEIVE_KEY = "onsale.receive"  # the server's own, beneath all layers: a long stream finds its transport behind it
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_PROCESS, _requests = f"{uuid.uuid4().hex[:16]}-", itertools.count(1)
GONE = 499  # by convention: the client went away before it had said what it wanted
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def create_service(
    name: str,
    settings: ServiceSettings,
    *,
    title: str,
    lifespan: Lifespan,
    routers: Sequence[APIRouter] = (),
    hot_routes: Sequence[BaseRoute] = (),
    internal_routers: Sequence[APIRouter] = (),
    internal_hot_routes: Sequence[Route] = (),
    checks: Callable[[FastAPI], Checks] = lambda app: {},
    meter: LoadMeter | None = None,
) -> FastAPI:
    """One service's app. `checks` are the engines `/readyz` asks; what is internal gets `/internal` and a lock."""
    watched = with_keys(lifespan, settings.keys_file, settings)
    app = FastAPI(
        title=f"Onsale {title}", version=VERSION, lifespan=watched, redoc_url=None, root_path_in_servers=False,
        separate_input_output_schemas=False,
    )  # fmt: skip
    app.state.settings = settings
    app.state.draining = False
    app.state.on_drain = []
    app.state.warnings = list[str]
    hot = [*hot_routes, *(internal_hot_route(route, settings.service_keys) for route in internal_hot_routes)]
    app.router.routes.extend(hot)
    for router in routers:
        app.include_router(router)
    for router in internal_routers:
        locked = [Depends(neighbours_only(settings.service_keys))]
        app.include_router(router, prefix="/internal", dependencies=locked, include_in_schema=False)
    app.include_router(_probes(name, checks))
    answer_with_problems(app)
    app.add_middleware(RequestShell, service=name, settings=settings, meter=meter)
    lane = HotLane(app, hot)
    app.state.hot_lane = lane.takes, RequestShell(lane, service=name, settings=settings, meter=meter)
    return app


async def drain(app: FastAPI) -> None:
    """The process is going away: balancers see it by `/readyz`, and once they have had the time to look, long streams
    are told to reconnect, which is elsewhere by then.
    """
    app.state.draining = True
    await asyncio.sleep(app.state.settings.drain_delay_s)
    await asyncio.gather(*(end() for end in app.state.on_drain))


def public(app: FastAPI) -> ASGIApp:
    """The face that browsers and balancers see."""
    return _face(app, inside=False)


def internal(app: FastAPI) -> ASGIApp:
    """The face that neighbours see."""
    return _face(app, inside=True)


def _face(app: FastAPI, *, inside: bool) -> ASGIApp:
    hot, short_way = app.state.hot_lane

    async def face(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(INSIDE) != inside:
            await send_problem(problems.NotFound(), None, send)
        elif hot(scope):
            await short_way(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":
            await app({**scope, "method": "GET"}, receive, send)  # the server keeps the body back
        else:
            await app(scope, receive, send)

    return face


class RequestShell:
    """Outermost layer: names the request, bounds its body, measures it, and keeps a bug from leaking its words."""

    def __init__(self, app: ASGIApp, *, service: str, settings: ServiceSettings, meter: LoadMeter | None) -> None:
        self._app, self._service, self._settings, self._meter = app, service, settings, meter
        self._timers: dict[tuple[str, str, int], Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        named, length = _head(scope)
        scope[REQUEST_ID_KEY] = request_id = named or f"{_PROCESS}{next(_requests):x}"
        scope[RECEIVE_KEY] = receive
        tag = (b"x-request-id", request_id.encode())
        weighed = self._meter.begins(scope, started) if self._meter else 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                scope[STARTED_KEY] = True
                message["headers"] = [*message["headers"], tag, *scope.get(ANSWER_HEADERS_KEY, ())]
            await send(message)

        try:
            inside = scope["path"].startswith("/internal")
            limit = self._settings.internal_body_max_bytes if inside else self._settings.body_max_bytes
            await self._app(scope, _bounded(length, receive, limit), tagged)
        except ClientDisconnect:
            status = status or GONE
        except Exception:
            log.exception(
                "request.failed", extra=data(service=self._service, request_id=request_id, path=scope["path"])
            )
            if not status:
                await send_problem(problems.InternalError(), request_id, tagged)
        finally:
            del scope[RECEIVE_KEY]  # it refers back to the request, which would wait for the collector
            self._measure(scope, status, seconds := time.perf_counter() - started, request_id)
            if self._meter:
                self._meter.ends(weighed, status, seconds)

    def _measure(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if status == problems.MethodNotAllowed.status:
            route, method = "none", "other"  # strangers' inventions are one series
        timer = self._timers.get((route, method, status))
        if timer is None:
            timer = self._timers[route, method, status] = REQUESTS.labels(self._service, route, method, status)
        timer.observe(seconds)
        if self._settings.log_requests and not scope.get(QUIET_KEY):
            fields = data(service=self._service, request_id=request_id, method=method, route=route,
                          status=status, ms=round(seconds * 1000, 2))  # fmt: skip
            log.info("request", extra=fields)


def _head(scope: Scope) -> tuple[str | None, bytes | None]:
    """The name the caller gave this request, if it is a fit one, and the length it says its body has."""
    named: str | None = None
    length: bytes | None = None
    for key, value in scope["headers"]:
        if key == b"content-length":
            length = value
        elif key == b"x-request-id" and named is None and _REQUEST_ID.fullmatch(value):
            named = value.decode()
    return named, length


def _bounded(length: bytes | None, receive: Receive, limit: int) -> Receive:
    """`receive` that raises `BodyTooLarge` past `limit` bytes, told by the head or found while reading."""
    if length is not None and (not length.isdigit() or int(length) > limit):

        async def refuse() -> Message:
            raise problems.BodyTooLarge(f"At most {limit} bytes are taken here.")

        return refuse
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise problems.BodyTooLarge(f"At most {limit} bytes are taken here.")
        return message

    return counted


class _Readiness:
    """What the checks said last, for half a second: however many ask, an engine is asked twice a second."""

    def __init__(self, checks: Callable[[FastAPI], Checks]) -> None:
        self._checks, self._until_s = checks, float("-inf")
        self._asking: asyncio.Task[list[str]] | None = None

    async def failing(self, app: FastAPI) -> list[str]:
        if self._asking is None or (self._asking.done() and time.monotonic() > self._until_s):
            self._asking = asyncio.create_task(self._ask(app))
        return await asyncio.shield(self._asking)

    async def _ask(self, app: FastAPI) -> list[str]:
        failed = await _failing(self._checks(app))
        self._until_s = time.monotonic() + READY_KEPT_S
        return failed


def _probes(name: str, checks: Callable[[FastAPI], Checks]) -> APIRouter:
    router, readiness = APIRouter(tags=["operations"]), _Readiness(checks)

    @router.get("/livez", summary="Is the process alive?")
    async def livez() -> dict[str, bool]:
        return {"live": True}

    @router.get("/readyz", summary="Do this service's own engines answer?")
    async def readyz(request: Request) -> dict[str, Any]:
        if request.app.state.draining:
            raise problems.Unavailable("This process is going away.")
        failed = await readiness.failing(request.app)
        if failed:
            raise problems.Unavailable(f"Not ready: {', '.join(failed)}.", failing=failed)
        descriptors, warnings = {"open": descriptors_open(), "max": descriptors_max()}, request.app.state.warnings()
        told = {"ready": True, "service": name, "descriptors": descriptors}
        return told | ({"warnings": warnings} if warnings else {})

    @router.get("/metrics", summary="Prometheus metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/version", summary="Which version runs here?")
    async def version() -> dict[str, str]:
        return {"service": name, "version": VERSION}

    return router


async def _failing(checks: Checks) -> list[str]:
    """Names of the checks that raised or took too long."""

    async def ask(name: str) -> str | None:
        try:
            async with asyncio.timeout(READY_DEADLINE_S):
                await checks[name]()
        except Exception as failed:  # noqa: BLE001 - whatever it is, it is not ready
            log.info("not.ready", extra=data(check=name, error=repr(failed)))
            return name
        return None

    return [name for name in await asyncio.gather(*map(ask, checks)) if name]
