"""Listens for a service: finds who answers a request, and does what every request needs before that and after.

Before: an id, a bound on the body, load shedding. After: problems, the id in the answer, metrics, the log, traces. A
fast route is answered past the framework; all other requests are the framework's, as one more handler.

`begin` answers at once what needs no waiting, so that a server needs no task for it, and as a plain ASGI app the
listener awaits what it gets.
"""

import asyncio
import itertools
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from inspect import isawaitable
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from shared.contracts.fields import invalid_request
from shared.errors import problems
from shared.features import ProblemPage
from shared.process.load import Load
from shared.runtime import tracing
from shared.runtime.logging import get_logger, request_fields
from shared.runtime.metrics import FAILURES, REQUESTS
from shared.runtime.tracing import sale_log
from shared.web.answers import (
    Answer,
    Later,
    allowed_methods,
    compressed,
    document,
    problem_answer,
    problem_of_exception,
)
from shared.web.fast_routes import FastRoute, Found
from shared.web.internal_api import PREFIX
from shared.web.parts import PostedForms
from shared.web.request import REQUEST_KEY, Field, Request

log = get_logger("onsale.http")
INTERNAL_PREFIXES = (PREFIX, "/metrics")
INTERNAL_BODY_MAX_BYTES = 4 * 1024 * 1024  # a batch of joins or heartbeats
GONE = 499  # by convention: the client disconnected before it had sent the whole request
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_request_id = re.compile(rb"[A-Za-z0-9_-]{8,64}")
_event_path = re.compile(r"/events/([A-Za-z0-9_-]{1,64})(?:/|$)")
_PROCESS, _requests = f"{uuid.uuid4().hex[:16]}-", itertools.count(1)


Matched = tuple[Callable[[str], re.Match[str] | None], FastRoute]
Routes = Mapping[tuple[str, int], Sequence[Matched]]


def route_table(routes: Iterable[FastRoute]) -> Routes:
    """The fast routes of a service, by the method and the number of parts of their path."""
    table: dict[tuple[str, int], list[Matched]] = {}
    for route in routes:
        for method in route.methods or ():
            table.setdefault((method, route.path.count("/")), []).append((route.path_regex.match, route))
    return table


def _check(route: FastRoute, path: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` for parameters of the path that do not have their form."""
    for name, pattern, compiled in route.patterns:
        if not compiled.fullmatch(path[name]):
            error = {"type": "string_pattern_mismatch", "msg": "", "ctx": {"pattern": pattern}, "loc": ("path", name)}
            raise invalid_request([error])


class ServiceListener:
    """The ASGI app of one listener of a service: the public one, or the one inside, for the other services."""

    def __init__(
        self, app: FastAPI, routes: Routes, forms: Sequence[PostedForms], problem_page: ProblemPage | None, *,
        service: str, inside: bool, log_requests: bool, load: Load | None, body_max_bytes: int,
    ) -> None:  # fmt: skip
        self._app, self._routes, self._forms, self.service, self._inside = app, routes, forms, service, inside
        self._problem_page = problem_page
        self._log_requests, self._load = log_requests, load
        self._body_max_bytes = INTERNAL_BODY_MAX_BYTES if inside else body_max_bytes
        self._timer = cache(partial(REQUESTS.labels, service))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.begin(scope, receive)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def begin(self, scope: Scope, receive: Receive) -> Found:
        """The answer, if it needs no waiting or waits for nothing but a batch; else the ASGI app that answers."""
        if scope["path"].startswith(INTERNAL_PREFIXES) != self._inside:
            return document(problems.NotFound())
        request = Request(self._app, scope, receive, body_max_bytes=self._body_max_bytes)
        posted = self._forms if request.is_form and not self._inside else ()
        form = next(filter(None, (forms.answering(request, self.answer) for forms in posted)), None)
        return form or self._begin(request)

    async def answer(self, request: Request) -> Answer:
        """The answer of a fast route."""
        found: Any = self._begin(request)
        made = await found.run(None) if isinstance(found, Pending) else await found if isawaitable(found) else found
        assert isinstance(made, Answer), "the framework and streams send theirs"
        return made

    # -- before --------------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> Found:
        route = self._name(request)
        request.started_s = time.perf_counter()
        try:
            if self._load is not None:
                request.number = self._load.before(request.scope)
            if request.traced or request.picked:
                return Pending(self, request, route, None)  # what it logs has the context of its task
            found = self.call(request, route)
        except Exception as raised:  # noqa: BLE001
            return self.after(request, self.refusal(request, raised))
        if isinstance(found, Answer):
            return self.after(request, found)
        if isinstance(found, Later):
            return Later(found.future, partial(self._made, request, found.make))
        return Pending(self, request, route, found)

    def _name(self, request: Request) -> FastRoute | None:
        """Gives the request its id, and decides whether it is traced and logged step by step; its fast route."""
        scope = request.scope
        named = request.fields.get(b"x-request-id", b"")
        is_named = _request_id.fullmatch(named) is not None
        request.id = named.decode() if is_named else f"{_PROCESS}{next(_requests):x}"
        if tracing.tracer is not None:
            request.traced = tracing.is_traced(scope)
        if sale_log.on:
            request.picked = sale_log.picks_request(scope["path"], named=is_named)
        path: str = scope["path"]
        for match, route in self._routes.get((scope["method"], path.count("/")), ()):
            if (found := match(path)) is not None:
                request.route, request.path, request.quiet = route.path, found.groupdict(), True
                return route
        return None

    def call(self, request: Request, route: FastRoute | None) -> Found | Awaitable[Found]:
        """What the route's handler makes of it, or the framework."""
        if route is None:
            return partial(self._framework, request)
        _check(route, request.path)
        return route.handler(request)

    async def _framework(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server drops the body
        inner = {**scope, "method": method, REQUEST_KEY: request}
        try:
            await self._app(inner, request.bounded(), send)
        finally:
            request.route = getattr(inner.get("route"), "path", "none")

    # -- after ---------------------------------------------------------------------------------------------------------

    def _made(self, request: Request, make: Callable[[Any], Answer], ended: "asyncio.Future[Any]") -> Answer:
        try:
            made = make(ended)
        except Exception as raised:  # noqa: BLE001
            made = self.refusal(request, raised)
        return self.after(request, made)

    def refusal(self, request: Request, raised: Exception) -> Answer:
        """The answer to what a handler or the framework raised."""
        problem = problem_of_exception(raised, request.scope["path"], service=self.service, route=request.route)
        if problem.code == problems.MethodNotAllowed.status:
            request.added = (*request.added, allowed_methods(self._app, request.scope))
        request.facts = {**request.facts, "reason": problem.slug}
        return compressed(request.fields, problem_answer(request.scope, problem, self._problem_page, request.id))

    def after(self, request: Request, answer: Answer) -> Answer:
        """Ends the request; the answer with its id and what the handler added."""
        self.end(request, answer.status)
        return Answer(answer.status, answer.body, (*answer.fields, *self.added(request)))

    def added(self, request: Request) -> tuple[Field, ...]:
        """The header fields that any answer has."""
        return ((b"x-request-id", request.id.encode()), *request.added)

    def end(self, request: Request, status: int) -> None:
        """Measures and logs the request, and makes room for others."""
        scope, route, seconds = request.scope, request.route, time.perf_counter() - request.started_s
        request.status = status
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if status == problems.MethodNotAllowed.status:
            route, method = "none", "other"  # unknown methods are one time series
        exemplar = {"trace_id": tracing.trace_id() or ""} if request.traced else None
        self._timer(route, method, status).observe(seconds, exemplar)
        if status >= problems.InternalError.status:
            FAILURES.labels(self.service, route, method).inc()
        if request.picked:
            sale_log.ended(request, route, ms=seconds * 1000)
        if self._log_requests and not request.quiet:
            log.info(
                "request", service=self.service, request_id=request.id, method=method, route=route, status=status,
                ms=round(seconds * 1000, 2),
            )  # fmt: skip
        if self._load is not None:
            self._load.after(request.number, status)

    @contextmanager
    def context(self, request: Request) -> Iterator[None]:
        """What is logged, traced and called inside knows the request."""
        fields = {"request_id": request.id}
        if of_event := _event_path.search(request.scope["path"]):
            fields["event_id"] = of_event[1]
        traced = tracing.begin_request(self.service, request.scope) if request.traced else None
        if traced and (trace_id := tracing.trace_id()):
            fields["trace_id"] = trace_id
        token = request_fields.set(fields)
        try:
            with sale_log.request(request.picked) if sale_log.on else nullcontext():
                yield
        finally:
            request_fields.reset(token)
            if traced:
                tracing.end_request(
                    traced, method=request.scope["method"], route=request.route, status=request.status,
                    event_id=fields.get("event_id"),
                )  # fmt: skip


class Pending:
    """An answer that takes waiting, a stream, or what the framework will answer: an ASGI app. A server may `run` it and
    write the answer that comes of it as its own.
    """

    def __init__(
        self, listener: ServiceListener, request: Request, route: FastRoute | None,
        found: Found | Awaitable[Found] | None,
    ) -> None:  # fmt: skip
        self._listener, self._request, self._route, self._found = listener, request, route, found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self.run(send)
        if answer is not None:
            await answer(scope, receive, send)

    async def run(self, send: Send | None) -> Answer | None:
        """The answer; None if it was sent, by `send`."""
        listener, request, status = self._listener, self._request, 0
        answer: Answer | None = None

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *listener.added(request)]
            assert send is not None
            await send(message)

        with listener.context(request):
            try:
                found: Any = listener.call(request, self._route) if self._found is None else self._found
                found = await found if isawaitable(found) else found
                if isinstance(found, Answer):
                    answer = found
                else:
                    await found(request.scope, request.receive, tagged)
            except ClientDisconnect:
                pass
            except Exception as raised:
                if status:
                    log.error("request.failed", service=listener.service, route=request.route, exc_info=raised)
                else:
                    answer = listener.refusal(request, raised)
            finally:
                if answer is None:
                    listener.end(request, status or GONE)
            return answer and listener.after(request, answer)
