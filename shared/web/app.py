"""Builds the FastAPI app of a service: problems, request ids, limits, compression, probes, metrics, two listeners.

`/internal` and `/metrics` answer only on the internal listener, everything else only on the public one: `public(app)`
and `internal(app)` are the ASGI apps of the two. A lifespan puts what it opens on `app.state`. Before the listeners
close, `drain(app)` makes readiness false and runs the callbacks in `app.state.on_drain`, which end long streams.
"""

import asyncio
import itertools
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.telemetry import TelemetryConfig
from prometheus_client import REGISTRY, Histogram
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared import VERSION
from shared.checks.endpoint import OwnChecks, checks_router
from shared.concurrency.background import ACTIVITY
from shared.concurrency.cached_reads import CachedReads
from shared.errors import problems
from shared.process.load_meter import LoadMeter
from shared.process.removed_settings import removed_and_set
from shared.process.settings import ServiceSettings
from shared.routes import Service
from shared.runtime import tracing
from shared.runtime.descriptors import descriptors_max, descriptors_open
from shared.runtime.logging import PICKED_KEY, get_logger, request_fields, sale_log
from shared.runtime.metrics import FAILURES, REQUESTS
from shared.security.auth import WrongKeys
from shared.security.key_reload import with_key_reload
from shared.web.api_document import complete_openapi
from shared.web.exception_handlers import REQUEST_ID_KEY, add_exception_handlers, send_problem
from shared.web.fast_routes import (
    QUIET_KEY,
    STARTED_KEY,
    BatchAnswer,
    FastRoutes,
    ImmediateAnswer,
    limited_body,
)
from shared.web.forms import Form, Forms
from shared.web.internal_api import PREFIX, REGULAR_CALLS, InternalApi, OwnProcess
from shared.web.load_shedding import shed_load

log = get_logger("onsale.http")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Checks = Mapping[str, Callable[[], Awaitable[object]]]
READY_DEADLINE_S = 2.0
READY_KEPT_S = 0.5
INTERNAL_PREFIXES = ("/internal", "/metrics")
ANSWER_HEADERS_KEY = "onsale.answer_headers"  # headers that an endpoint adds to any answer, a problem included
RECEIVE_KEY = "onsale.receive"  # the server's own `receive`, through which a long stream finds its transport
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_EVENT_PATH = re.compile(r"/events/([A-Za-z0-9_-]{1,64})(?:/|$)")
_PROCESS, _requests = f"{uuid.uuid4().hex[:16]}-", itertools.count(1)
BODY_MAX_BYTES = 64 * 1024  # of a fan's request; the largest is an order with a long e-mail address
EVENT_FILE_MAX_BYTES = 256 * 1024  # an event file of 500 sections with a map is 150 KB
INTERNAL_BODY_MAX_BYTES = 4 * 1024 * 1024  # a batch of joins or heartbeats
COMPRESS_MIN_BYTES, COMPRESS_LEVEL = 1_000, 4  # fast routes answer less and are not compressed
WITHOUT_TELEMETRY: TelemetryConfig = {  # the framework's own would also send bodies that failed a validation
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip
# Requests that come while nothing happens.
REGULAR = frozenset({"/livez", "/readyz", "/metrics", "/version", *(PREFIX + path for path in REGULAR_CALLS)})
GONE = 499  # by convention: the client disconnected before it had sent the whole request
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def create_service(
    name: Service,
    settings: ServiceSettings,
    *,
    title: str,
    lifespan: Lifespan,
    routers: Sequence[APIRouter] = (),
    fast_routes: Sequence[BaseRoute] = (),
    internal_api: InternalApi | None = None,
    checks: Callable[[FastAPI], Checks] = lambda app: {},
    meter: LoadMeter | None = None,
    own_checks: OwnChecks = tuple,
    forms: tuple[Form, ...] = (),
    body_max_bytes: int = BODY_MAX_BYTES,
) -> FastAPI:
    """One service's app. `/readyz` runs `checks`; the operations of `internal_api` get the prefix `/internal` and need
    a signature.
    """
    sale_log.use(settings.log_sale)
    for variable in removed_and_set(settings):
        log.warning("setting.removed", variable=variable, effect="none any more; see CHANGELOG.md")
    reloading = with_key_reload(lifespan, settings.keys_file, settings)
    app = FastAPI(
        title=f"Onsale {title}", version=VERSION, lifespan=reloading, root_path_in_servers=False,
        docs_url=None, redoc_url=None,  # these pages load scripts of other hosts, on the origin of the console
        separate_input_output_schemas=False, telemetry=WITHOUT_TELEMETRY,
    )  # fmt: skip
    api = internal_api or InternalApi()
    app.state.settings = settings
    app.state.admin_keys = settings.admin_keys
    app.state.wrong_keys = WrongKeys(shared_by=settings.processes)
    app.state.draining = False
    app.state.on_drain = []
    app.state.deps = None  # the lifespan sets it
    app.state.own_process = OwnProcess(name, app, api, meter)
    app.state.warnings = list[str]
    fast = [*fast_routes, *(each.route(settings.service_keys) for each in api.values())]
    app.router.routes.extend(fast)
    for router in routers:
        app.include_router(router)
    app.include_router(_probes(name, checks))
    app.include_router(checks_router(name, own_checks))
    for route in (*fast, *_routes(routers)):
        for method in (getattr(route, "methods", None) or set()) - {"HEAD"}:
            FAILURES.labels(name, getattr(route, "path", ""), method)
    complete_openapi(app, [form.path for form in forms])
    add_exception_handlers(app)
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESS_MIN_BYTES, compresslevel=COMPRESS_LEVEL)
    bypass = FastRoutes(app, fast)
    fast_app = shed_load(app, bypass) if meter else bypass
    observe = partial(
        RequestMiddleware, service=name, log_requests=settings.log_requests, meter=meter, body_max_bytes=body_max_bytes
    )
    app.add_middleware(observe)
    app.state.forms = forms
    app.state.fast_routes = bypass, observe(fast_app)
    return app


def _routes(routers: Sequence[APIRouter]) -> list[BaseRoute]:
    return [route for router in routers for route in router.routes]


async def drain(app: FastAPI) -> None:
    """The process is stopping: `/readyz` fails, and after the delay that balancers need to notice, long streams end and
    their clients reconnect elsewhere.
    """
    app.state.draining = True
    await asyncio.sleep(app.state.settings.drain_delay_s)
    await asyncio.gather(*(end() for end in app.state.on_drain))


def public(app: FastAPI) -> ASGIApp:
    """The ASGI app of the public listener, for browsers and balancers."""
    return ServiceListener(app, inside=False)


def internal(app: FastAPI) -> ASGIApp:
    """The ASGI app of the internal listener, for the other services."""
    return ServiceListener(app, inside=True)


def _is_watching(scope: Scope) -> bool:
    """Probes, and what an operator or the console only reads: they come all the time and are no work."""
    return scope["path"] in REGULAR or (scope["method"] == "GET" and scope["path"].startswith("/admin/"))


class ServiceListener:
    """The ASGI app of one listener: 404 for what the other one answers, fast routes past the framework."""

    def __init__(self, app: FastAPI, *, inside: bool) -> None:
        self._app, self._inside = app, inside
        self._fast_routes, self._fast_app = app.state.fast_routes
        forms = () if inside else app.state.forms
        self._forms = Forms(self, forms, secure_cookies=getattr(app.state.settings, "secure_cookies", False))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_watching(scope):
            ACTIVITY.stir()
        if scope["type"] == "http" and scope["path"].startswith(INTERNAL_PREFIXES) != self._inside:
            await send_problem(problems.NotFound(), None, send)
        elif self._forms.matches(scope):
            await self._forms(scope, receive, send)
        elif self._fast_routes.matches(scope):
            await self._fast_app(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send)  # the server drops the body
        else:
            await self._app(scope, receive, send)

    def answer_now(self, scope: Scope) -> ImmediateAnswer | BatchAnswer | None:
        """The answer to a request without a body, if it needs no task; None to call the app."""
        if self._inside or scope["path"].startswith(INTERNAL_PREFIXES) or not self._fast_routes.matches(scope):
            return None
        found: ImmediateAnswer | BatchAnswer | None = self._fast_app.answer_now(scope)
        return found


class RequestMiddleware:
    """The outermost layer: gives the request an id, limits its body, measures it, and hides the text of a bug."""

    def __init__(
        self, app: ASGIApp, *, service: str, log_requests: bool, meter: LoadMeter | None, body_max_bytes: int
    ) -> None:
        self._app, self._service, self._log_requests, self._meter = app, service, log_requests, meter
        self._body_max_bytes = body_max_bytes
        self._timers: dict[tuple[str, str, int], Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        named, length = _head(scope)
        scope[REQUEST_ID_KEY] = request_id = named or f"{_PROCESS}{next(_requests):x}"
        of_event = _EVENT_PATH.search(scope["path"])
        fields = {"request_id": request_id, "event_id": of_event[1]} if of_event else {"request_id": request_id}
        logged = sale_log.request(scope, named=named is not None) if sale_log.on else nullcontext()
        traced = tracing.begin_request(self._service, scope) if tracing.tracer is not None else None
        if traced and (trace_id := tracing.trace_id()):
            fields["trace_id"] = trace_id
        context = request_fields.set(fields)
        scope[RECEIVE_KEY] = receive
        tag = (b"x-request-id", request_id.encode())
        number = self._meter.request_started(scope, started) if self._meter else 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                scope[STARTED_KEY] = True
                message["headers"] = [*message["headers"], tag, *scope.get(ANSWER_HEADERS_KEY, ())]
            await send(message)

        try:
            inside = scope["path"].startswith("/internal")
            limit = INTERNAL_BODY_MAX_BYTES if inside else self._body_max_bytes
            with logged:
                await self._app(scope, _limit_body(length, receive, limit), tagged)
        except ClientDisconnect:
            status = status or GONE
        except Exception:
            log.exception("request.failed", service=self._service, route=_route(scope))
            if not status:
                await send_problem(problems.InternalError(), request_id, tagged)
        finally:
            del scope[RECEIVE_KEY]  # it refers to the request: a cycle that only the garbage collector would free
            self._measure(scope, status, seconds := time.perf_counter() - started, request_id)
            request_fields.reset(context)
            if traced:
                tracing.end_request(traced, method=scope["method"], route=_route(scope), status=status,
                                    event_id=fields.get("event_id"))  # fmt: skip
            if self._meter:
                self._meter.request_finished(number, status, seconds)

    def answer_now(self, scope: Scope) -> ImmediateAnswer | BatchAnswer | None:
        """The answer of a fast route that needs no task, with its request id, measured like any other."""
        if tracing.tracer is not None and tracing.is_traced(scope):
            return None  # a span needs a task
        if sale_log.on:
            scope[PICKED_KEY] = picked = sale_log.picks()
            if picked:
                return None  # what is logged has the context of a task
        started = time.perf_counter()
        found: ImmediateAnswer | BatchAnswer | None = self._app.answer_now(scope)  # type: ignore[attr-defined]
        if isinstance(found, BatchAnswer):
            return BatchAnswer(found.result, lambda result: self._tag(scope, found.make(result), started))
        return found and self._tag(scope, found, started)

    def _tag(self, scope: Scope, found: ImmediateAnswer, started: float) -> ImmediateAnswer:
        named, _ = _head(scope)
        request_id = named or f"{_PROCESS}{next(_requests):x}"
        self._measure(scope, found.status, time.perf_counter() - started, request_id)
        head = b"%bx-request-id: %b\r\n" % (found.head, request_id.encode())
        return ImmediateAnswer(head, found.body, found.status)

    def _measure(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = _route(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if status == problems.MethodNotAllowed.status:
            route, method = "none", "other"  # unknown methods are one time series
        timer = self._timers.get((route, method, status))
        if timer is None:
            timer = self._timers[route, method, status] = REQUESTS.labels(self._service, route, method, status)
        exemplar = {"trace_id": found} if tracing.tracer is not None and (found := tracing.trace_id()) else None
        timer.observe(seconds, exemplar)
        if status >= problems.InternalError.status:
            FAILURES.labels(self._service, route, method).inc()
        if sale_log.on:
            sale_log.ended(scope, route, status=status, ms=seconds * 1000, request_id=request_id)
        if self._log_requests and not scope.get(QUIET_KEY):
            ms = round(seconds * 1000, 2)
            log.info(
                "request",
                service=self._service,
                request_id=request_id,
                method=method,
                route=route,
                status=status,
                ms=ms,
            )


def _route(scope: Scope) -> str:
    """The template of the path: a path itself may have an order's reference."""
    return getattr(scope.get("route"), "path", "none")


def _head(scope: Scope) -> tuple[str | None, bytes | None]:
    """The request id that the caller sent, if it is well-formed, and the declared length of the body."""
    named: str | None = None
    length: bytes | None = None
    for key, value in scope["headers"]:
        if key == b"content-length":
            length = value
        elif key == b"x-request-id" and named is None and _REQUEST_ID.fullmatch(value):
            named = value.decode()
    return named, length


def _limit_body(length: bytes | None, receive: Receive, limit: int) -> Receive:
    """`receive` that raises `BodyTooLarge` past `limit` bytes, told by the head or found while reading."""
    if length is not None and (not length.isdigit() or int(length) > limit):

        async def refuse() -> Message:
            raise problems.BodyTooLarge(f"The body may have at most {limit} bytes.")

        return refuse
    return limited_body(receive, limit)


class Liveness(BaseModel):
    """The process is alive."""

    live: bool


class Descriptors(BaseModel):
    """File descriptors: open now (null where the system does not show it), and the limit."""

    open: int | None
    max: int


class Readiness(BaseModel):
    """The service can answer; `warnings` is absent if there are none."""

    ready: bool
    service: str
    descriptors: Descriptors
    warnings: list[str] | None = None


class RunningVersion(BaseModel):
    """The service and its version."""

    service: str
    version: str


class _ReadinessChecks:
    """Keeps the result of the checks for half a second, so that each runs at most twice a second."""

    def __init__(self, checks: Callable[[FastAPI], Checks]) -> None:
        self._checks = checks
        self._reads: CachedReads[list[str]] = CachedReads(kept_s=READY_KEPT_S, keys_max=1)

    async def failing(self, app: FastAPI) -> list[str]:
        return await self._reads.get("failing", lambda: _failing(self._checks(app)))


def _probes(name: str, checks: Callable[[FastAPI], Checks]) -> APIRouter:
    router, readiness = APIRouter(tags=["operations"]), _ReadinessChecks(checks)

    @router.get("/livez", summary="Check that the process is alive")
    async def livez() -> Liveness:
        return Liveness(live=True)

    @router.get("/readyz", response_model_exclude_unset=True, summary="Check that this service's databases answer")
    async def readyz(request: Request) -> Readiness:
        if request.app.state.draining:
            raise problems.Unavailable("This process is stopping.")
        failed = await readiness.failing(request.app)
        if failed:
            raise problems.Unavailable(f"Not ready: {', '.join(failed)}.", failing=failed)
        descriptors = Descriptors(open=descriptors_open(), max=descriptors_max())
        warnings = request.app.state.warnings()
        more = {"warnings": warnings} if warnings else {}
        return Readiness(ready=True, service=name, descriptors=descriptors, **more)

    @router.get("/metrics", summary="Get the Prometheus metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(REGISTRY), headers={"content-type": media_type})

    @router.get("/version", summary="Get the version")
    async def version() -> RunningVersion:
        return RunningVersion(service=name, version=VERSION)

    return router


async def _failing(checks: Checks) -> list[str]:
    """Names of the checks that raised or took too long."""

    async def run(name: str) -> str | None:
        try:
            async with asyncio.timeout(READY_DEADLINE_S):
                await checks[name]()
        except Exception as failed:  # noqa: BLE001 - any failure means not ready
            log.info("readiness.failed", check=name, error=repr(failed))
            return name
        return None

    return [name for name in await asyncio.gather(*map(run, checks)) if name]
