"""The short way to hot routes: past the framework's layers, to the same endpoint, with the same problem documents.

A route is on it if its endpoint is an ASGI class and its path parameters are plain strings; for anything else, wrong
methods included, the app itself answers. Neighbours have hot routes too, behind their lock.
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
QUIET_KEY = "onsale.quiet"  # a request that the log does not tell of: a crowd makes it
JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")
Question = TypeVar("Question", bound=BaseModel)


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """A whole answer."""
    head = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def whole_body(receive: Receive) -> bytes:
    """All of a request's body; whoever runs us bounds it. Raises `ClientDisconnect`."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


class NeighboursOnly:
    """An endpoint behind the lock of `/internal`: it is handed the whole body, in one message, once its signature is
    checked.
    """

    def __init__(self, endpoint: ASGIApp, keys: Keyring) -> None:
        self._endpoint, self._keys = endpoint, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await whole_body(receive)
        signature = next((value for name, value in scope["headers"] if name == SIGNATURE), b"").decode("latin-1")
        check_service_call(self._keys, signature, scope["method"], scope["path"], body, now_s=time.time())

        async def whole() -> Message:
            return {"type": "http.request", "body": body}

        await self._endpoint(scope, whole, send)


class Asked:
    """An endpoint for neighbours, read and written by pydantic's own JSON: `work` is handed the app's state and the
    question. The framework would check and copy every member of a batch once more.
    """

    def __init__(self, question: type[Question], work: Callable[[Any, Question], Awaitable[BaseModel]]) -> None:
        self._read: Callable[[bytes], Any] = question.model_validate_json
        self._work: Callable[[Any, Any], Awaitable[BaseModel]] = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        try:
            question = self._read(await whole_body(receive))
        except ValidationError as refused:
            raise InvalidRequest(f"{refused.error_count()} fields are not acceptable.") from refused
        told = await self._work(scope["app"].state, question)
        await answer(send, 200, told.model_dump_json().encode(), JSON)


def internal_hot_route(route: Route, keys: Keyring) -> Route:
    """The same route under `/internal`, behind its lock."""
    return Route(f"/internal{route.path}", NeighboursOnly(route.endpoint, keys), methods=list(route.methods or ()))


class HotLane:
    """Finds the hot route of a request and runs its endpoint."""

    def __init__(self, app: FastAPI, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = [
            (route.path_regex.match, route.methods, route)
            for route in routes
            if isinstance(route, Route)
            and route.methods
            and all(isinstance(convertor, StringConvertor) for convertor in route.param_convertors.values())
        ]

    def takes(self, scope: Scope) -> bool:
        """Whether this request is for a hot route; the scope then says which, as the framework would have."""
        if scope["type"] != "http" or scope.get("root_path"):
            return False
        path, method = scope["path"], scope["method"]
        for match, methods, route in self._routes:
            found = match(path)
            if found is not None and method in methods:
                scope["app"], scope["route"], scope["endpoint"] = self._app, route, route.endpoint
                scope["path_params"] = found.groupdict()
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
