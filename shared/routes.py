"""The public paths and the services that answer them, for the development proxy and for the load balancers.

The first matching row wins. `deploy/nginx.conf` and `deploy/haproxy.cfg` are generated from this table.
"""

import re
from dataclasses import dataclass
from typing import Literal

Service = Literal["gateway", "queue", "inventory", "orders", "notifier", "console"]
SALE_SERVICES: tuple[Service, ...] = ("gateway", "queue", "inventory", "orders", "notifier")  # fans need these
SERVICES: tuple[Service, ...] = (*SALE_SERVICES, "console")
SERVICES_WITH_TABLES: tuple[Service, ...] = ("queue", "inventory", "orders", "console")
EVENT_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"
SECTION_ID = r"[A-Za-z0-9][A-Za-z0-9_]{0,31}"
REFERENCE = r"[A-Za-z0-9]{8,40}"


@dataclass(frozen=True, slots=True)
class Route:
    """A path (a regular expression for the whole path) and its service; a `stream` is not buffered and never times out.

    A balancer that loses an answer retries at another process if the method is idempotent (RFC 9110) or if the request
    has an Idempotency-Key; on a `repeatable` route it always retries. The answer of a `cached` route to a GET is the
    same for all and says for how long: a balancer answers a crowd with it.
    """

    path: str
    service: Service
    stream: bool = False
    private: bool = False
    repeatable: bool = False
    cached: bool = False


ROUTES: tuple[Route, ...] = (
    Route(rf"/events/{EVENT_ID}/sections/updates", "notifier", stream=True),
    Route(rf"/orders/{REFERENCE}/updates", "notifier", stream=True),
    Route(rf"/events/{EVENT_ID}/queue/pass", "gateway", repeatable=True),
    Route(rf"/events/{EVENT_ID}/queue", "gateway", cached=True),
    Route(rf"/events/{EVENT_ID}/queue/.*", "gateway"),
    Route(rf"/events/{EVENT_ID}/sections", "inventory", cached=True),
    Route(r"/events(/.*)?", "inventory"),
    Route(rf"/e/{EVENT_ID}/brand\.css", "inventory"),
    Route(r"/orders/quote", "orders", repeatable=True),
    Route(r"/orders(/.*)?", "orders"),
    Route(r"/payments/.*", "orders"),
    Route(r"/webhooks/.*", "orders", repeatable=True),
    Route(r"/reminders(/.*)?", "orders"),
    Route(rf"/admin/events/{EVENT_ID}/room(/.*)?", "queue", private=True),
    *(Route(rf"/admin/{service}/checks", service, private=True) for service in ("gateway", "notifier", "console")),
    Route(rf"/console/api/events/{EVENT_ID}/stream", "console", stream=True, private=True),
    Route(r"/console(/.*)?", "console", private=True),
    Route(r"/admin/queue/.*", "queue", private=True),
    Route(r"/admin/inventory/.*", "inventory", private=True),
    Route(r"/admin/orders(/.*)?", "orders", private=True),
    Route(
        r"/|/e/.*|/o|/o/.*|/static/.*|/gate/.*|/problems(/.*)?|/openapi/.*|/\.well-known/.*|/favicon\.ico|"
        r"/(embed|onsale)\.js|/onsale\.d\.ts",
        "gateway",
    ),
)
_compiled = tuple((re.compile(route.path), route) for route in ROUTES)


def route(path: str) -> Route | None:
    """The row for a public path; `None` means 404 at the balancer."""
    for pattern, row in _compiled:
        if pattern.fullmatch(path):
            return row
    return None


def at_suite(url: str, path: str) -> str:
    """The address of a public path. `{service}` in the suite's URL becomes the service that answers the path."""
    if "{service}" not in url:
        return url + path
    row = route(path.partition("?")[0])
    return url.replace("{service}", row.service if row else "gateway") + path
