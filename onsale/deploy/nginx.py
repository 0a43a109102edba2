"""Generates `deploy/nginx.conf` from the table of routes: several processes of each service, limits, streams, TLS, and
private addresses on which services call each other.

nginx has no active health checks: it learns from failed requests. A request that was not sent, or may be sent twice, is
retried at another process.
"""

from collections.abc import Iterator, Mapping

from onsale.deploy.balancers import (
    ANSWER_WITHIN_S,
    BODY_MAX_KIB,
    GENERATED,
    HSTS,
    INSIDE_BODY_MAX_KIB,
    OWN_ERRORS,
    REJECTED,
    SERVICES_WITH_INTERNAL_API,
    STREAM_SILENT_MAX_S,
    Plan,
    document,
)
from shared.web import problem_page
from shared.web.problems import MEDIA_TYPE, Problem
from shared.web.routes import ROUTES, SERVICES, Route

HEAD = """\
# {generated}
worker_processes auto;
events {{ worker_connections 16384; }}

http {{
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    client_max_body_size {body_kib}k;
    client_body_buffer_size {body_kib}k;  # nothing is written to disk
    proxy_max_temp_file_size 0;
    client_header_timeout 15s;
    client_body_timeout 15s;
    keepalive_timeout 75s;
{real_ip}
    # Of IPv6 a customer has a /64. A fan is known by the signature of the token they carry, or by their address alone.
    map $binary_remote_addr $address {{
        "~^(?<network>(?s:.{{8}}))(?s:.{{8}})$" $network;
        default $binary_remote_addr;
    }}
    map $http_authorization $bearer {{ "~*^bearer .*?(?<of_bearer>[^. ]+) *$" $of_bearer; default ""; }}
    map $http_cookie $holder_cookie {{
        "~onsale_(?:queue|pass|order)_[A-Za-z0-9_-]+=(?:[^;]*\\.)?(?<of_cookie>[^.;]+)" $of_cookie;
        default "";
    }}
    map $bearer $holder {{ "" $holder_cookie; default $bearer; }}
    limit_req_zone $address zone=addresses:10m rate={limits.address_requests_per_s}r/s;
    limit_req_zone $holder zone=holders:20m rate={limits.holder_requests_per_s}r/s;
    limit_conn_zone $address zone=streams_of_addresses:10m;
    limit_conn_zone $holder zone=streams_of_holders:10m;
    limit_req_status 429;
    limit_conn_status 429;

    # A person's browser that asks for a document is answered with a page, everybody else with a problem document.
    map "$request_method $http_accept" $person {{ "~^(GET|HEAD) .*text/html" 1; default ""; }}

    # A call that may be sent twice although it writes.
    map "$request_method $http_idempotency_key" $keyed {{ "~^(POST|PATCH) ." 1; default ""; }}

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Request-Id $request_id;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $forwarded_proto;
    proxy_connect_timeout 1s;
    proxy_read_timeout {answer_s}s;
    proxy_next_upstream error timeout;
    proxy_next_upstream_tries 3;
    proxy_next_upstream_timeout 10s;
{error_pages}
"""
REPEAT = "proxy_next_upstream error timeout non_idempotent;"


def nginx_conf(plan: Plan | None = None) -> str:
    """The whole configuration."""
    plan = plan or Plan()
    head = HEAD.format(
        generated=GENERATED, body_kib=BODY_MAX_KIB, real_ip=_real_ip(plan), limits=plan.limits,
        answer_s=ANSWER_WITHIN_S, error_pages=_error_pages(),
    )  # fmt: skip
    return head + "".join((*_upstreams(plan), *_public(plan), *_internal(plan))) + "}\n"


def _real_ip(plan: Plan) -> str:
    """The proxies whose X-Forwarded-For and scheme are trusted."""
    if not plan.trusted:
        return "    map $scheme $forwarded_proto { default $scheme; }\n"
    networks = "".join(f"    set_real_ip_from {network};\n" for network in plan.trusted)
    trusts = "".join(f" {network} 1;" for network in plan.trusted)
    return (
        f"{networks}    real_ip_header X-Forwarded-For;\n    real_ip_recursive on;\n"
        f"    geo $realip_remote_addr $trusted {{ default 0;{trusts} }}\n"
        '    map "$trusted $http_x_forwarded_proto" $forwarded_proto '
        '{ "1 https" https; "1 http" http; default $scheme; }\n'
    )


def _upstreams(plan: Plan) -> Iterator[str]:
    for name in SERVICES:
        yield _upstream(name, [process.public for process in plan.processes[name]])
    for name in SERVICES_WITH_INTERNAL_API:
        yield _upstream(f"{name}_inside", [process.internal for process in plan.processes[name]])


def _upstream(name: str, addresses: list[str]) -> str:
    servers = "".join(f"server {address} max_fails=5 fail_timeout=2s; " for address in addresses)
    return f"    upstream {name} {{ least_conn; zone {name} 64k; {servers}keepalive 64; }}\n"


def _public(plan: Plan) -> Iterator[str]:
    hsts = f'add_header Strict-Transport-Security "{HSTS}" always;' if plan.certificate else ""
    listen = f"listen {plan.listen};"
    if plan.certificate:
        yield f"\n    server {{ {listen} return 308 https://$host{plan.tls_port}$request_uri; }}\n"
        listen = (
            f"listen {plan.listen_tls} ssl http2;\n        ssl_certificate {plan.certificate};\n"
            f"        ssl_certificate_key {plan.key};\n        ssl_protocols TLSv1.2 TLSv1.3;\n"
            f"        ssl_session_cache shared:tls:10m;\n        {hsts}"
        )
    yield f"\n    server {{\n        {listen}\n"
    yield from (_location(row, plan) for row in ROUTES)
    again = _lines([*_request_limits(plan), REPEAT, "proxy_pass http://$service;"])
    yield f"\n        location @again {{\n{again}        }}"
    yield (
        f"\n        location @turned_away {{ default_type text/event-stream; {hsts} "
        f'add_header Cache-Control no-store always; return 200 "{REJECTED}"; }}'
    )
    yield f"\n        location / {{ return 404; }}\n{_problems(hsts)}    }}\n"


def _location(row: Route, plan: Plan) -> str:
    rules = [f"proxy_pass http://{row.service};"]
    if row.private:
        rules += [*(f"allow {network};" for network in plan.operators), "deny all;"]
    if row.stream:
        limits = plan.limits
        rules += [
            f"limit_conn streams_of_addresses {limits.address_streams};",
            f"limit_conn streams_of_holders {limits.holder_streams};",
            "proxy_buffering off;", f"proxy_read_timeout {STREAM_SILENT_MAX_S}s;",
            "error_page 429 502 504 = @turned_away;",
        ]  # fmt: skip
    else:
        rules += _request_limits(plan)
        rules += [REPEAT] if row.repeatable else [f"set $service {row.service};", "if ($keyed) { return 418; }"]
    return f'\n        location ~ "^({row.path})$" {{\n{_lines(rules)}        }}\n'


def _request_limits(plan: Plan) -> list[str]:
    limits = plan.limits
    return [
        f"limit_req zone=addresses burst={limits.address_burst} nodelay;",
        f"limit_req zone=holders burst={limits.holder_burst} nodelay;",
    ]


def _internal(plan: Plan) -> Iterator[str]:
    """The internal APIs. Every call is signed and may be retried; the addresses are for services only."""
    for name in SERVICES_WITH_INTERNAL_API:
        rules = [f"proxy_pass http://{name}_inside;", REPEAT]
        yield (
            f"\n    server {{\n        listen {plan.internal[name]};\n"
            f"        client_max_body_size {INSIDE_BODY_MAX_KIB}k;\n"
            f"        client_body_buffer_size {INSIDE_BODY_MAX_KIB}k;\n"
            f"        location /internal/ {{\n{_lines(rules)}        }}\n        location / {{ return 404; }}\n"
            f"{_problems('')}    }}\n"
        )


def _error_pages() -> str:
    codes: dict[str, list[int]] = {}
    for code, problem in OWN_ERRORS.items():
        codes.setdefault(_name(problem), []).append(code)
    pages = [f"    error_page {' '.join(map(str, those))} = {name};\n" for name, those in codes.items()]
    return "    recursive_error_pages on;\n    error_page 418 = @again;\n" + "".join(pages)


def _problems(hsts: str) -> str:
    """Problem documents for the errors that nginx answers by itself."""
    named = {_name(problem): problem for problem in OWN_ERRORS.values()}
    return "".join(_problem(name, problem, hsts) for name, problem in named.items())


def _problem(name: str, problem: Problem, hsts: str) -> str:
    page = f"/-/{problem.slug}-{problem.code}"
    body, code = document(problem, "$request_id"), problem.code
    return (
        f"        location {name} {{ default_type {MEDIA_TYPE}; {hsts} {_headers(problem.headers())} "
        f"if ($person) {{ rewrite ^ {page} last; }} return {code} '{body}'; }}\n"
        f"        location = {page} {{ internal; default_type text/html; charset utf-8; {hsts} "
        f"{_headers(problem_page.headers(problem))} return {code} '{problem_page.page(problem)}'; }}\n"
    )


def _headers(fields: Mapping[str, str]) -> str:
    return " ".join(f'add_header {name} "{value}" always;' for name, value in fields.items())


def _name(problem: Problem) -> str:
    return f"@{problem.slug}-{problem.code}"


def _lines(rules: list[str]) -> str:
    return "".join(f"            {rule}\n" for rule in rules)
