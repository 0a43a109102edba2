"""`deploy/nginx.conf`, written from the one table of routes: per-IP limits, streams unbuffered, admin not public."""

from collections.abc import Mapping

from shared.routes import ROUTES, SERVICES, Route, Service

PORTS: Mapping[Service, str] = {
    "gateway": "127.0.0.1:8101",
    "queue": "127.0.0.1:8102",
    "inventory": "127.0.0.1:8103",
    "orders": "127.0.0.1:8104",
    "notifier": "127.0.0.1:8105",
}
HEAD = """\
# Generated from shared/routes.py by `make deploy-config`. Change the table, not this file.
worker_processes auto;
events {{ worker_connections 16384; }}

http {{
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    client_max_body_size 256k;
    keepalive_timeout 75s;

    # One person behind an address asks a few times a second; a school or an office shares one address.
    limit_req_zone $binary_remote_addr zone=requests:10m rate={requests_per_s}r/s;
    limit_conn_zone $binary_remote_addr zone=streams:10m;
    limit_req_status 429;
    limit_conn_status 429;
"""
SERVER = """
    server {{
        listen {listen};

        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_set_header X-Request-Id $request_id;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_connect_timeout 2s;
        proxy_next_upstream error timeout;
        proxy_next_upstream_tries 2;

        error_page 413 @too_large;
        error_page 429 @too_many;
        error_page 502 504 @away;
"""
TAIL = """
        location / { default_type application/problem+json; return 404 '{"type":"/problems/not-found","title":"There is nothing at this address.","status":404}'; }
        location @too_large { default_type application/problem+json; return 413 '{"type":"/problems/body-too-large","title":"The request body is larger than this address takes.","status":413}'; }
        location @too_many { default_type application/problem+json; add_header Retry-After 1 always; return 429 '{"type":"/problems/too-many-requests","title":"Too many requests from this address.","status":429}'; }
        location @away { default_type application/problem+json; add_header Retry-After 1 always; return 503 '{"type":"/problems/unavailable","title":"This part of the suite cannot answer right now. Nothing was changed; try again shortly.","status":503}'; }
    }
}
"""  # noqa: E501 - one rule, one line


def nginx_conf(upstreams: Mapping[Service, str] = PORTS, *, listen: str = "8080", requests_per_s: int = 50) -> str:
    """A whole configuration. `upstreams` says where each service's public listener is."""
    parts = [HEAD.format(requests_per_s=requests_per_s)]
    parts += [f"    upstream {name} {{ least_conn; server {upstreams[name]}; keepalive 64; }}\n" for name in SERVICES]
    parts.append(SERVER.format(listen=listen))
    parts += [_location(row) for row in ROUTES]
    return "".join(parts) + TAIL


def _location(row: Route) -> str:
    rules = [f"proxy_pass http://{row.service};"]
    if row.private:
        rules += ["allow 127.0.0.0/8;", "allow 10.0.0.0/8;", "deny all;"]
    if row.stream:
        rules += ["limit_conn streams 200;", "proxy_buffering off;", "proxy_read_timeout 1h;"]
    else:
        rules += ["limit_req zone=requests burst=500 nodelay;"]
    body = "".join(f"            {rule}\n" for rule in rules)
    return f'\n        location ~ "^({row.path})$" {{\n{body}        }}\n'
