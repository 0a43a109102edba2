"""Fast routes bypass the framework's middleware: the same endpoints, with the same problem documents.

A route is fast if its endpoint is an ASGI class and its path parameters are plain strings; every other request, wrong
methods included, goes through the app. Internal fast routes need a service's signature.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from starlette.convertors import StringConvertor
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.security.auth import SERVICE_HEADER, check_service_call
from shared.security.tokens import Keyring
from shared.web.problems import InvalidRequest

SIGNATURE = SERVICE_HEADER.encode()
STARTED_KEY = "onsale.started"
QUIET_KEY = "onsale.quiet"  # requests of a crowd are not logged
JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")
Question = TypeVar("Question", bound=BaseModel)


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Sends a complete response."""
    head = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request; the middleware limits its size. Raises `ClientDisconnect`."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


class SignedRoute:
    """An internal endpoint: checks the signature of the body, then passes the body on in one message."""

    def __init__(self, endpoint: ASGIApp, keys: Keyring) -> None:
        self._endpoint, self._keys = endpoint, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        signature = next((value for name, value in scope["headers"] if name == SIGNATURE), b"").decode("latin-1")
        check_service_call(self._keys, signature, scope["method"], scope["path"], body, now_s=time.time())

        async def whole() -> Message:
            return {"type": "http.request", "body": body}

        await self._endpoint(scope, whole, send)


class JsonRoute:
    """An internal endpoint that reads and writes JSON with pydantic alone: `work` gets the app's state and the request.

    The framework would validate and copy every member of a batch once more.
    """

    def __init__(self, question: type[Question], work: Callable[[Any, Question], Awaitable[BaseModel]]) -> None:
        self._read: Callable[[bytes], Any] = question.model_validate_json
        self._work: Callable[[Any, Any], Awaitable[BaseModel]] = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        try:
            question = self._read(await read_body(receive))
        except ValidationError as refused:
            names = [".".join(map(str, error["loc"])) for error in refused.errors(include_input=False)[:3]]
            raise InvalidRequest(f"Invalid fields: {', '.join(names)}.") from refused
        reply = await self._work(scope["app"].state, question)
        await answer(send, 200, reply.model_dump_json().encode(), JSON)


def internal_fast_route(route: Route, keys: Keyring) -> Route:
    """The same route under `/internal`, which needs a signature."""
    return Route(f"/internal{route.path}", SignedRoute(route.endpoint, keys), methods=list(route.methods or ()))


class FastRoutes:
    """Finds the fast route of a request and runs its endpoint."""

    def __init__(self, app: FastAPI, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = [
            (route.path_regex.match, route.methods, route)
            for route in routes
            if isinstance(route, Route)
            and route.methods
            and all(isinstance(convertor, StringConvertor) for convertor in route.param_convertors.values())
        ]

    def matches(self, scope: Scope) -> bool:
        """Whether this request is for a fast route, which it then puts into the scope as the framework would."""
        if scope["type"] != "http" or scope.get("root_path"):
            return False
        path, method = scope["path"], scope["method"]
        for match, methods, route in self._routes:
            matched = match(path)
            if matched is not None and method in methods:
                scope["app"], scope["route"], scope["endpoint"] = self._app, route, route.endpoint
                scope["path_params"] = matched.groupdict()
                return True
        return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await scope["route"].app(scope, receive, send)
        except Exception as raised:
            handlers = self._app.exception_handlers
            expected = (kind for kind in type(raised).__mro__ if kind in handlers and kind is not Exception)
            handler = handlers.get(next(expected, None))
            if handler is None or scope.get(STARTED_KEY):
                raise
            response = await handler(Request(scope, receive), raised)  # type: ignore[misc]
            await response(scope, receive, send)
