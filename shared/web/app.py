"""Builds the FastAPI app of a service: problems, request ids, limits, compression, probes, metrics, two listeners.

`/internal` and `/metrics` answer only on the internal listener, everything else only on the public one: `public(app)`
and `internal(app)` are the ASGI apps of the two. A lifespan puts what it opens on `app.state`. Before the listeners
close, `drain(app)` makes readiness false and runs the callbacks in `app.state.on_drain`, which end long streams.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.telemetry import TelemetryConfig
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from starlette.middleware.gzip import GZipMiddleware

from shared import VERSION
from shared.concurrency.coalescing import CachedReads
from shared.errors import problems
from shared.features import problem_page
from shared.process.load import Load
from shared.process.settings import ServiceSettings, removed_and_set
from shared.routes import Service
from shared.runtime.descriptors import descriptors_max, descriptors_open
from shared.runtime.logging import get_logger
from shared.runtime.metrics import FAILURES
from shared.runtime.tracing import sale_log
from shared.security.auth import WrongKeys
from shared.security.key_reload import with_key_reload
from shared.web.answers import COMPRESS_LEVEL, COMPRESS_MIN_BYTES
from shared.web.api_document import complete_openapi
from shared.web.fast_routes import FastRoute
from shared.web.internal_api import InternalApi, OwnProcess
from shared.web.listener import ServiceListener, route_table
from shared.web.parts import parts_of, with_parts

log = get_logger("onsale.http")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Checks = Mapping[str, Callable[[], Awaitable[object]]]
READY_DEADLINE_S = 2.0
READY_KEPT_S = 0.5  # so that each check runs at most twice a second
BODY_MAX_BYTES = 64 * 1024  # of a fan's request; the largest is an order with a long e-mail address
EVENT_FILE_MAX_BYTES = 256 * 1024  # an event file of 500 sections with a map is 150 KB
WITHOUT_TELEMETRY: TelemetryConfig = {  # the framework's own would also send bodies that failed a validation
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip


def create_service(
    name: Service,
    settings: ServiceSettings,
    *,
    title: str,
    lifespan: Lifespan,
    routers: Sequence[APIRouter] = (),
    fast_routes: Sequence[FastRoute] = (),
    internal_api: InternalApi | None = None,
    checks: Callable[[FastAPI], Checks] = lambda app: {},
    load: Load | None = None,
    body_max_bytes: int = BODY_MAX_BYTES,
) -> FastAPI:
    """One service's app. `/readyz` runs `checks`; the operations of `internal_api` get the prefix `/internal` and need
    a signature.
    """
    sale_log.use(settings.log_sale)
    for variable in removed_and_set(settings):
        log.warning("setting.removed", variable=variable, effect="none any more; see CHANGELOG.md")
    parts = parts_of(name, settings.features_off)
    reloading = with_key_reload(with_parts(lifespan, name, parts), settings.keys_file, settings)
    app = FastAPI(
        title=f"Onsale {title}", version=VERSION, lifespan=reloading, root_path_in_servers=False,
        docs_url=None, redoc_url=None,  # these pages load scripts of other hosts, on the origin of the console
        separate_input_output_schemas=False, telemetry=WITHOUT_TELEMETRY,
    )  # fmt: skip
    api = InternalApi(internal_api or {})
    for part in parts:
        api |= part.internal_api or {}
    app.state.settings = settings
    app.state.admin_keys = settings.admin_keys
    app.state.wrong_keys = WrongKeys(shared_by=settings.processes)
    app.state.draining = False
    app.state.load = load
    app.state.on_drain = []
    app.state.deps = None  # the lifespan sets it
    app.state.parts = {}  # so it does here: what features opened, by class
    app.state.running = nullcontext  # and here: what works only while those are open
    app.state.own_process = OwnProcess(name, app, api, load)
    app.state.warnings = list[str]
    fast_routes = [*fast_routes, *(route for part in parts for route in part.fast_routes)]
    routers = [*(router for part in parts for router in part.routers), *routers]  # a core's path may have a variable
    fast = [*fast_routes, *(each.route(settings.service_keys) for each in api.values())]
    app.router.routes.extend(fast)
    for router in routers:
        app.include_router(router)
    app.include_router(_probes(name, checks))
    for route in (*fast, *(route for router in routers for route in router.routes)):
        for method in (getattr(route, "methods", None) or set()) - {"HEAD"}:
            FAILURES.labels(name, getattr(route, "path", ""), method)
    forms = [part.forms for part in parts if part.forms]
    complete_openapi(app, [path for each in forms for path in each.paths])
    inner = AsyncExitStackMiddleware(app.router)  # what it raises is the listener's to answer
    app.middleware_stack = GZipMiddleware(inner, minimum_size=COMPRESS_MIN_BYTES, compresslevel=COMPRESS_LEVEL)
    app.state.listener = partial(
        ServiceListener, app, route_table(fast), forms, problem_page(settings.features_off), service=name,
        log_requests=settings.log_requests, load=load, body_max_bytes=body_max_bytes,
    )  # fmt: skip
    return app


def public(app: FastAPI) -> ServiceListener:
    """The ASGI app of the public listener, for browsers and balancers."""
    return cast("ServiceListener", app.state.listener(inside=False))


def internal(app: FastAPI) -> ServiceListener:
    """The ASGI app of the internal listener, for the other services."""
    return cast("ServiceListener", app.state.listener(inside=True))


async def drain(app: FastAPI) -> None:
    """The process is stopping: `/readyz` fails, and after the delay that balancers need to notice, long streams end and
    their clients reconnect elsewhere.
    """
    app.state.draining = True
    await asyncio.sleep(app.state.settings.drain_delay_s)
    await asyncio.gather(*(end() for end in app.state.on_drain))


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


def _probes(name: str, checks: Callable[[FastAPI], Checks]) -> APIRouter:
    router = APIRouter(tags=["operations"])
    kept: CachedReads[list[str]] = CachedReads(kept_s=READY_KEPT_S, keys_max=1)

    @router.get("/livez", summary="Check that the process is alive")
    async def livez() -> Liveness:
        return Liveness(live=True)

    @router.get("/readyz", response_model_exclude_unset=True, summary="Check that this service's databases answer")
    async def readyz(request: Request) -> Readiness:
        if request.app.state.draining:
            raise problems.Unavailable("This process is stopping.")
        failed = await kept.get("failing", lambda: _failing(checks(request.app)))
        if failed:
            raise problems.Unavailable(f"Not ready: {', '.join(failed)}.", failing=failed)
        descriptors = Descriptors(open=descriptors_open(), max=descriptors_max())
        more = {"warnings": warnings} if (warnings := request.app.state.warnings()) else {}
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
    running = (asyncio.wait_for(check(), READY_DEADLINE_S) for check in checks.values())
    ended = zip(checks, await asyncio.gather(*running, return_exceptions=True), strict=True)
    failed = {name: error for name, error in ended if isinstance(error, BaseException)}
    for name, error in failed.items():
        log.info("readiness.failed", check=name, error=repr(error))
    return list(failed)
