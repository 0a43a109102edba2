"""Follows requests through all services: traces over the OpenTelemetry API, and a log line for each step of a sale.

Traces are off by default; off, a request costs one `is None`. They are switched on by the standard variables
(`OTEL_EXPORTER_OTLP_ENDPOINT` and what the exporter reads besides) where `onsale[otel]` is installed. A request is
traced if the `traceparent` it brings says so, or as one of N, where `OTEL_TRACES_SAMPLER_ARG` is 1/N; that is decided
before any span is made. Anybody can send that header, so it counts at most `REQUESTED_PER_S_MAX` times a second from
outside. A batch continues the trace of its first traced member and links to the others; what is done later (an order's
steps, a webhook) continues the trace that was stored with the row. Spans have names and the attributes of `ALLOWED`,
never a token, an address or a value.

`sale_log` is off unless `ONSALE_LOG_SALE` says for which share of the steps; then a step costs one test of a boolean.
Whether a request is logged is decided once, when it comes; what it causes in batches and other services is logged with
it and has its id. Work that no request asked for is logged by the same share. No line has a token, an address or a
name.
"""

import itertools
import math
import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.runtime.logging import get_logger, request_fields

log = get_logger("onsale.tracing")
ALLOWED = frozenset({"http.route", "http.request.method", "http.response.status_code", "onsale.event_id",
                     "onsale.service", "onsale.members", "onsale.attempt"})  # fmt: skip
LINKS_MAX, REQUESTED_PER_S_MAX = 32, 50
SAMPLED_ARG, ENDPOINT, DISABLED = "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"
TRACEPARENT = b"traceparent"
OFF = nullcontext()  # around what is not followed
_propagator = TraceContextTextMapPropagator()

tracer: Tracer | None = None  # None: off
_one_in, _requests = 0, itertools.count(1)
_requested: deque[float] = deque(maxlen=REQUESTED_PER_S_MAX)


def start(provider: TracerProvider | None, *, one_in: int = 0, processes: int = 1) -> None:
    """Traces with this provider every request that asks for it, and one in `one_in` of the others; `None` stops."""
    global tracer, _one_in, _requested
    requested: deque[float] = deque(maxlen=math.ceil(REQUESTED_PER_S_MAX / processes))
    tracer, _one_in, _requested = provider.get_tracer("onsale") if provider else None, one_in, requested


def start_from_environment(*, processes: int = 1) -> None:
    """Starts an exporter if the environment names an endpoint. Says so if the packages for it are missing. Each of
    several `processes` traces its part of the requests that ask for it.
    """
    if not os.environ.get(ENDPOINT) or os.environ.get(DISABLED, "").lower() == "true":
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError:
        log.warning("tracing.not_installed", install="onsale[otel]")
        return
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "onsale")})
    provider = SdkTracerProvider(sampler=ALWAYS_ON, resource=resource)  # what is not sampled never gets this far
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    share = float(os.environ.get(SAMPLED_ARG) or 0.01)
    start(provider, one_in=round(1 / share) if share > 0 else 0, processes=processes)


class RequestSpan(NamedTuple):
    """The span of a request, current until `end_request`."""

    span: Span
    token: Token[Context]


def is_traced(scope: MutableMapping[str, Any]) -> bool:
    """Decides whether this request is traced. Call only while `tracer` is not None, once for a request."""
    asks = _context_of(_parent_of(scope)) is not None
    return (asks and _may_request(scope["path"])) or bool(_one_in and next(_requests) % _one_in == 0)


def _may_request(path: str) -> bool:
    """Whether a request that asks to be traced may be: always from inside, where it continues a trace."""
    if path.startswith("/internal"):
        return True
    now_s = time.monotonic()
    if len(_requested) == _requested.maxlen and now_s - _requested[0] < 1:
        return False
    _requested.append(now_s)
    return True


def _parent_of(scope: MutableMapping[str, Any]) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == TRACEPARENT), None)


def begin_request(service: str, scope: MutableMapping[str, Any]) -> RequestSpan | None:
    """A span for this request, which is traced; None if tracing has ended meanwhile."""
    if tracer is None:
        return None
    above = _context_of(_parent_of(scope)) or Context()
    span = tracer.start_span(f"{service} {scope['method']}", context=above, kind=SpanKind.SERVER)
    span.set_attribute("onsale.service", service)
    return RequestSpan(span, otel_context.attach(trace.set_span_in_context(span, above)))


def end_request(request: RequestSpan, *, method: str, route: str, status: int, event_id: str | None) -> None:
    """Ends it under the name of its route."""
    span = request.span
    span.update_name(f"{method} {route}")
    for name, value in (("http.route", route), ("http.request.method", method), ("onsale.event_id", event_id)):
        if value is not None:
            span.set_attribute(name, value)
    span.set_attribute("http.response.status_code", status)
    otel_context.detach(request.token)
    span.end()


def trace_id() -> str | None:
    """The id of the current trace, for log lines."""
    found = _current()
    return f"{found.trace_id:032x}" if found else None


def traceparent() -> str | None:
    """The current span as a header or column has it; None outside a trace."""
    found = _current()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-01" if found else None


def headers() -> dict[str, str]:
    """What a call to another service adds to its headers."""
    found = traceparent() if tracer is not None else None
    return {"traceparent": found} if found else {}


def span(
    name: str, *, parent: str | None = None, kind: SpanKind = SpanKind.INTERNAL, links: Sequence[str] = (),
    **attributes: str | int,
) -> AbstractContextManager[None]:  # fmt: skip
    """A span inside the current trace, or inside that of `parent` (a traceparent); without either nothing happens.
    Attributes are written as `event_id=…` and become `onsale.event_id`.
    """
    return OFF if tracer is None else _span(name, parent, kind, links, attributes)


@contextmanager
def _span(
    name: str, parent: str | None, kind: SpanKind, links: Sequence[str], attributes: Mapping[str, str | int]
) -> Iterator[None]:
    above = _context_of(parent) if parent else otel_context.get_current() if _current() else None
    if tracer is None or above is None:
        yield
        return
    linked = [Link(found) for text in links[:LINKS_MAX] if (found := _span_context_of(text))]
    named = {f"onsale.{key}": value for key, value in attributes.items()}
    assert named.keys() <= ALLOWED, f"not allowed: {named.keys() - ALLOWED}"
    with tracer.start_as_current_span(
        name, context=above, kind=kind, links=linked, attributes=named, record_exception=False
    ):
        yield


def _current() -> SpanContext | None:
    if tracer is None:
        return None
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid and found.trace_flags.sampled else None


def _context_of(parent: str | None) -> Context | None:
    """The context of a sampled traceparent; None if it is absent, malformed or not sampled."""
    if parent is None:
        return None
    above = _propagator.extract({"traceparent": parent}, context=Context())
    found = trace.get_current_span(above).get_span_context()
    return above if found.is_valid and found.trace_flags.sampled else None


def _span_context_of(text: str) -> SpanContext | None:
    above = _context_of(text)
    return trace.get_current_span(above).get_span_context() if above is not None else None


# -- each step of a sale -----------------------------------------------------------------------------------------------

SALE = get_logger("onsale.sale")
REQUEST_STEPS: Mapping[tuple[str, str], str] = {  # by method and route
    ("POST", "/events/{event_id}/queue"): "sale.join",
    ("DELETE", "/events/{event_id}/queue"): "sale.leave",
    ("GET", "/events/{event_id}/queue/status"): "sale.position",
    ("POST", "/events/{event_id}/queue/pass"): "sale.claim",
    ("POST", "/events/{event_id}/reservations"): "sale.hold",
    ("DELETE", "/events/{event_id}/reservations/{reservation_id}"): "sale.release",
    ("POST", "/events/{event_id}/reservations/{reservation_id}/keep"): "sale.release",
    ("POST", "/orders"): "sale.order",
}
_picked: ContextVar[bool | None] = ContextVar("sale_log_picked", default=None)  # None: no request decided


class LoggedRequest(Protocol):
    """What the line of a request shows of it."""

    id: str
    status: int
    path: Mapping[str, str]
    facts: Mapping[str, Any]

    @property
    def method(self) -> str: ...


class SaleLog:
    """The lines of this process. Services that share a process share it: the largest share of theirs counts."""

    __slots__ = ("on", "share")

    def __init__(self) -> None:
        self.share, self.on = 0.0, False

    def use(self, share: float) -> None:
        self.share = max(self.share, share)
        self.on = self.share > 0

    def picks(self) -> bool:
        return random.random() < self.share  # noqa: S311

    def wanted(self) -> bool:
        """Whether what happens now is logged: as its request was decided, else by the share."""
        picked = _picked.get()
        return self.picks() if picked is None else picked

    def headers(self) -> dict[str, str]:
        """For a call to another service: the id of a logged request, which is logged there, too."""
        return {"x-request-id": request_fields.get()["request_id"]} if self.on and self.in_request() else {}

    def in_request(self) -> bool:
        """Whether this runs for a request that is logged."""
        return _picked.get() is True and "request_id" in request_fields.get()

    def write(self, name: str, /, **facts: Any) -> None:
        """The line of a step, if this one is logged."""
        if self.wanted():
            self.line(name, **facts)

    def line(self, name: str, /, **facts: Any) -> None:
        """The line of a step of which it was decided before."""
        SALE.info(name, **facts)

    def timed(self, name: str, /, **facts: Any) -> AbstractContextManager[None]:
        """The line of what runs inside, with its milliseconds and whether it failed."""
        return self._timed(name, facts) if self.on else OFF

    @contextmanager
    def _timed(self, name: str, facts: Mapping[str, Any]) -> Iterator[None]:
        began_s, outcome = time.perf_counter(), "ok"
        try:
            yield
        except BaseException as failed:
            outcome = reason_of(failed)
            raise
        finally:
            self.write(name, ms=_ms(began_s), outcome=outcome, **facts)

    def picks_request(self, path: str, *, named: bool) -> bool:
        """Whether a request is logged with all it causes. One of another service that has an id is logged there."""
        return (named and path.startswith("/internal")) or self.picks()

    @contextmanager
    def request(self, picked: bool) -> Iterator[None]:
        """What happens inside happens for a request of which this was decided."""
        token = _picked.set(picked)
        try:
            yield
        finally:
            _picked.reset(token)

    def ended(self, request: LoggedRequest, route: str, *, ms: float) -> None:
        """The line of a request that is logged, if it is a step of the sale."""
        name = REQUEST_STEPS.get((request.method, route))
        if name is not None:
            facts = {"event_id": request.path.get("event_id"), **request.facts}
            self.line(name, request_id=request.id, status=request.status, ms=round(ms, 2), **facts)

    @contextmanager
    def batch(
        self, name: str, members: int, *, requests: Sequence[dict[str, str]], waited_s: float
    ) -> Iterator[Counter[str]]:
        """The line of a batch, which runs for the first of the logged requests in it: how long they waited for the
        batches before, and how it ended for whom.
        """
        decided = _picked.set(True if requests else None)
        of_first = request_fields.set(requests[0] if requests else {})
        began_s, outcomes = time.perf_counter(), Counter[str]()
        try:
            yield outcomes
        finally:
            self.write("sale.batch", batch=name, members=members, waited_ms=round(waited_s * 1000, 2), ms=_ms(began_s),
                       outcomes=dict(outcomes), request_ids=[each["request_id"] for each in requests[:5]])  # fmt: skip
            request_fields.reset(of_first)
            _picked.reset(decided)


def reason_of(failed: BaseException) -> str:
    """A problem's slug, else the name of the exception."""
    return str(getattr(failed, "slug", type(failed).__name__))


def _ms(began_s: float) -> float:
    return round((time.perf_counter() - began_s) * 1000, 2)


sale_log = SaleLog()
