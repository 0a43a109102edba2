"""Generates `deploy/haproxy.cfg` from the same table and plan as nginx's.

HAProxy checks the health of every process twice a second, and keeps requests while a service has no healthy process:
each process is in its backend a second time as a spare without checks, which is retried for ten seconds.
"""

from collections.abc import Iterator, Sequence

from onsale.deploy.balancers import (
    ANSWER_WITHIN_S,
    BODY_MAX_KIB,
    GENERATED,
    HSTS,
    OWN_ERRORS,
    REJECTED,
    SERVICES_WITH_INTERNAL_API,
    STREAM_SILENT_MAX_S,
    Limits,
    Plan,
    Process,
    document,
)
from shared.web import problem_page
from shared.web.problems import MEDIA_TYPE, Problem
from shared.web.routes import ROUTES, SERVICES, Route, Service

DENIED = frozenset({400, 404, 408, 413, 429, 500, 502, 503, 504})  # errors that HAProxy answers by itself
PROXIES_MAX = 3
COUNTED_OVER_S = 10
REQUESTS_MAX, STREAMS_MAX = 1_000, 20_000
PAGE_PATHS = "'^/([eo]/.*)?$'"
COOKIE = "onsale_(queue|pass|order)_[A-Za-z0-9_-]*="
HEAD = """\
# {generated}
global
    ssl-default-bind-options ssl-min-ver TLSv1.2
    ssl-load-extra-del-ext

defaults
    mode http
    balance random
    option redispatch 1
    option allbackups
    option abortonclose
    retries 10
    retry-on conn-failure empty-response
    timeout connect 1s
    timeout client 75s
    timeout http-request 15s
    timeout http-keep-alive 75s
    timeout queue 10s
    timeout server {answer_s}s
    timeout check 3s
    option httpchk
    http-check send meth GET uri /readyz
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1 maxconn {requests_max} init-addr last,libc,none
    unique-id-format %[uuid()]
{errors}
backend addresses
    stick-table type ipv6 size 1m expire 30s store http_req_rate({over_s}s)
backend holders
    stick-table type string len 48 size 1m expire 30s store http_req_rate({over_s}s)
backend streams_of_addresses
    stick-table type ipv6 size 1m expire 30s store conn_cur
backend streams_of_holders
    stick-table type string len 48 size 1m expire 30s store conn_cur

backend nowhere
    http-request deny deny_status 404

# The same for a person's browser that asks for a document: what HAProxy says by itself is a page.
backend nowhere_pages
{pages}    http-request deny deny_status 404
"""


def haproxy_cfg(plan: Plan | None = None) -> str:
    """The whole configuration."""
    plan = plan or Plan()
    head = HEAD.format(
        generated=GENERATED, answer_s=ANSWER_WITHIN_S, over_s=COUNTED_OVER_S, requests_max=REQUESTS_MAX,
        errors="".join(_error(code, problem) for code, problem in OWN_ERRORS.items() if code in DENIED),
        pages=_all_pages(),
    )  # fmt: skip
    parts = ["\nfrontend public\n", *map(_line, _public(plan))]
    for name in SERVICES:
        parts += [f"\nbackend {name}\n", *map(_line, _backend(name, plan.processes[name]))]
    parts += ["\nbackend gateway_pages\n", _all_pages(), *map(_line, _pages(plan.processes["gateway"]))]
    for name in SERVICES_WITH_INTERNAL_API:
        parts += [f"\nfrontend {name}_front\n", *map(_line, (f"bind {plan.internal[name]}", *RETRY_RULES))]
        parts += [_line(f"default_backend {name}_inside"), f"\nbackend {name}_inside\n"]
        parts += map(_line, _internal(name, plan.processes[name]))
    return head + "".join(parts)


def _error(code: int, problem: Problem) -> str:
    fields = "".join(f" hdr {name} {value}" for name, value in problem.headers().items())
    return _line(f"http-error status {code} content-type {MEDIA_TYPE} lf-string '{document(problem, '%ID')}'{fields}")


def _page(code: int, problem: Problem) -> str:
    fields = "".join(f' hdr {name} "{value}"' for name, value in problem_page.headers(problem).items())
    kind = f'content-type "{problem_page.MEDIA_TYPE}"'
    return _line(f"http-error status {code} {kind} string '{problem_page.page(problem)}'{fields}")


def _all_pages() -> str:
    return "".join(_page(code, problem) for code, problem in OWN_ERRORS.items() if code in DENIED)


RETRY_RULES = (  # of ours alone: a service's own 502 has no Retry-After
    "http-after-response set-status 503 if { status 502 504 } { res.fhdr(retry-after) -m found }",
)


def _public(plan: Plan) -> Iterator[str]:
    yield f"bind {_bind(plan.listen)}"
    yield from _tls(plan)
    yield from _client_identity(plan)
    yield "http-request set-var(txn.person) bool(true) if METH_GET { req.hdr(accept) -m sub text/html }"
    yield "acl person var(txn.person) -m bool"
    yield from _rate_counters(plan.limits)
    yield f"http-request deny deny_status 413 if {{ req.body_size gt {BODY_MAX_KIB * 1024} }}"
    yield "acl repeatable method GET HEAD OPTIONS PUT DELETE"
    yield "acl repeatable req.hdr(idempotency-key) -m found"
    yield from (f"acl repeatable path_reg {_pattern(row)}" for row in ROUTES if row.repeatable)
    yield "http-request disable-l7-retry if !repeatable"
    yield from RETRY_RULES
    yield f"use_backend gateway_pages if person {{ path_reg {PAGE_PATHS} }}"
    yield from (f"use_backend {row.service} if {_matches(row)}" for row in ROUTES)
    yield "use_backend nowhere_pages if person"
    yield "default_backend nowhere"


def _tls(plan: Plan) -> Iterator[str]:
    if plan.certificate:
        yield f"bind {_bind(plan.listen_tls)} ssl crt {plan.certificate} alpn h2,http/1.1"
        there = f"https://%[req.hdr(host),host_only]{plan.tls_port}%[pathq]"
        yield f"http-request redirect code 308 location {there} unless {{ ssl_fc }}"
        yield f'http-after-response set-header Strict-Transport-Security "{HSTS}" if {{ ssl_fc }}'


def _client_identity(plan: Plan) -> Iterator[str]:
    """The client's address and scheme, and the fan, identified by the signature of their token."""
    yield "http-request set-header X-Request-Id %[unique-id]"
    trusted = f"src {' '.join(plan.trusted)}" if plan.trusted else "always_false"
    yield f"acl trusted {trusted}"
    yield "http-request del-header X-Forwarded-Proto if !trusted"
    yield "http-request set-header X-Forwarded-Proto https if { ssl_fc }"
    yield "http-request set-header X-Forwarded-Proto http if !{ req.hdr(x-forwarded-proto) -m found }"
    yield from (f"http-request set-src hdr_ip(x-forwarded-for,-{n}) if trusted" for n in range(1, PROXIES_MAX + 1))
    yield "http-request set-header X-Forwarded-For %[src]"
    yield "acl by_bearer req.hdr(authorization) -m beg -i bearer"
    yield f"acl by_cookie req.fhdr(cookie) -m reg {COOKIE}"
    yield "http-request set-var(txn.holder) req.hdr(authorization),word(-1,.) if by_bearer"
    cookie = f'req.fhdr(cookie),regsub("^.*{COOKIE}([^;]*).*$","\\2"),word(-1,.)'
    yield f"http-request set-var(txn.holder) '{cookie}' if !by_bearer by_cookie"
    yield f"acl operator src {' '.join(plan.operators)}" if plan.operators else "acl operator always_false"
    for row in ROUTES:
        if row.private:
            yield f"http-request deny deny_status 404 if {_matches(row)} !operator"


def _rate_counters(limits: Limits) -> Iterator[str]:
    yield from (f"acl stream path_reg {_pattern(row)}" for row in ROUTES if row.stream)
    yield "acl known var(txn.holder) -m found"
    yield "http-request track-sc0 src,ipmask(32,64) table addresses if !stream"
    yield "http-request track-sc1 var(txn.holder) table holders if !stream known"
    yield "http-request track-sc0 src,ipmask(32,64) table streams_of_addresses if stream"
    yield "http-request track-sc1 var(txn.holder) table streams_of_holders if stream known"
    most = (
        limits.address_requests_per_s * COUNTED_OVER_S + limits.address_burst,
        limits.holder_requests_per_s * COUNTED_OVER_S + limits.holder_burst,
    )
    busy = OWN_ERRORS[429]
    fields = "".join(f' hdr {name} "{value}"' for name, value in problem_page.headers(busy).items())
    page = f"content-type \"{problem_page.MEDIA_TYPE}\" string '{problem_page.page(busy)}'{fields}"
    for n, requests in enumerate(most):
        yield f"http-request return status 429 {page} if person !stream {{ sc{n}_http_req_rate gt {requests} }}"
        yield f"http-request deny deny_status 429 if !stream {{ sc{n}_http_req_rate gt {requests} }}"
    for n, streams in enumerate((limits.address_streams, limits.holder_streams)):
        yield (
            "http-request return status 200 content-type text/event-stream hdr Cache-Control no-store "
            f'string "{REJECTED}" if stream {{ sc{n}_conn_cur gt {streams} }}'
        )


def _backend(name: Service, processes: Sequence[Process]) -> Iterator[str]:
    streams = any(row.stream for row in ROUTES if row.service == name)
    if streams:
        yield "balance leastconn"
        yield f"timeout server {STREAM_SILENT_MAX_S}s"
        yield "option http-no-delay"
    maxconn = f" maxconn {STREAMS_MAX}" if streams else ""
    for n, process in enumerate(processes, 1):
        yield f"server {n} {process.public}{maxconn}"
    for n, process in enumerate(processes, 1):
        yield f"server spare{n} {process.public}{maxconn} no-check backup"


def _pages(processes: Sequence[Process]) -> Iterator[str]:
    """A second backend of the gateway, for pages."""
    for n, process in enumerate(processes, 1):
        yield f"server {n} {process.public} no-check track gateway/{n}"
    for n, process in enumerate(processes, 1):
        yield f"server spare{n} {process.public} no-check backup"


def _internal(name: Service, processes: Sequence[Process]) -> Iterator[str]:
    """The internal API, healthy when the public one is; every call may be retried."""
    for n, process in enumerate(processes, 1):
        yield f"server {n} {process.internal} no-check track {name}/{n}"
    for n, process in enumerate(processes, 1):
        yield f"server spare{n} {process.internal} no-check backup"


def _bind(listen: str) -> str:
    return listen if ":" in listen else f":{listen}"


def _pattern(row: Route) -> str:
    return f"'^({row.path})$'"


def _matches(row: Route) -> str:
    return f"{{ path_reg {_pattern(row)} }}"


def _line(text: str) -> str:
    return f"    {text}\n"
