"""Traces through all services, over the OpenTelemetry API. Off, a request costs one `is None`.

They are switched on by the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and what the exporter reads besides) where
`onsale[otel]` is installed. A request is traced if the `traceparent` it brings says so, or as one of N, where
`OTEL_TRACES_SAMPLER_ARG` is 1/N; that is decided before any span is made. Anybody can send that header, so it counts at
most `REQUESTED_PER_S_MAX` times a second from outside. A batch continues the trace of its first traced member and links
to the others; what is done later (an order's steps, a webhook) continues the trace that was stored with the row. Spans
have names and the attributes of `ALLOWED`, never a token, an address or a value.
"""

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Any, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.runtime.logging import get_logger

log = get_logger("onsale.tracing")
ALLOWED = frozenset({"http.route", "http.request.method", "http.response.status_code", "onsale.event_id",
                     "onsale.service", "onsale.members", "onsale.attempt"})  # fmt: skip
LINKS_MAX, REQUESTED_PER_S_MAX = 32, 50
SAMPLED_ARG, ENDPOINT, DISABLED = "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"
TRACEPARENT = b"traceparent"
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


@contextmanager
def span(
    name: str, *, parent: str | None = None, kind: SpanKind = SpanKind.INTERNAL, links: Sequence[str] = (),
    **attributes: str | int,
) -> Iterator[None]:  # fmt: skip
    """A span inside the current trace, or inside that of `parent` (a traceparent); without either nothing happens.
    Attributes are written as `event_id=…` and become `onsale.event_id`.
    """
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
