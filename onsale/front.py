"""The one port of a laptop: sends each request where a load balancer would, by the same table.

Each service's probes, metrics and docs stand under `/{service}/…`; plain `/readyz` is the conjunction of all.
"""

from collections.abc import Awaitable, Callable, Mapping

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from shared import problems
from shared.problems import Problem
from shared.routes import SERVICES, Service, route

OPERATIONS = frozenset({"/livez", "/readyz", "/metrics", "/version", "/docs", "/docs/oauth2-redirect", "/openapi.json"})


class Front:
    """An ASGI app in front of five others. `ready` says which parts are not ready, an empty list when all are."""

    def __init__(self, services: Mapping[Service, ASGIApp], ready: Callable[[], Awaitable[list[str]]]) -> None:
        self._services = services
        self._ready = ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        first, _, rest = path[1:].partition("/")
        if first in SERVICES and f"/{rest}" in OPERATIONS:
            scope = {**scope, "root_path": f"/{first}"}  # the framework strips it from the path
            await self._services[first](scope, receive, send)
        elif (row := route(path)) is not None:
            await self._services[row.service](scope, receive, send)
        elif path == "/readyz":
            await self._conjunction(send)
        elif path == "/livez":
            await _answer(send, 200, orjson.dumps({"live": True}), "application/json")
        else:
            await _problem(send, problems.NotFound())

    async def _conjunction(self, send: Send) -> None:
        waiting_for = await self._ready()
        if waiting_for:
            await _problem(send, problems.Unavailable(f"Not ready: {', '.join(waiting_for)}.", failing=waiting_for))
        else:
            await _answer(send, 200, orjson.dumps({"ready": True, "services": list(SERVICES)}), "application/json")


async def _problem(send: Send, problem: Problem) -> None:
    await _answer(send, problem.code, problem.body(), problems.MEDIA_TYPE, problem.headers())


async def _answer(send: Send, status: int, body: bytes, media_type: str, headers: dict[str, str] | None = None) -> None:
    fields = {"content-type": media_type, "content-length": str(len(body)), **(headers or {})}
    head = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
