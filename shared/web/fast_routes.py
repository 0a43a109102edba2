"""Fast routes bypass the framework's middleware: endpoints that are ASGI apps, with the same problem documents.

A `Route` is fast if its path parameters are plain strings; every other request, wrong methods included, goes through
the app. A `FastRoute` also declares its OpenAPI operation, because FastAPI documents only its own function endpoints.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.convertors import StringConvertor
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors.problems import BodyTooLarge

STARTED_KEY = "onsale.started"
QUIET_KEY = "onsale.quiet"  # requests of a crowd are not logged
RAISED_KEY = "onsale.raised"  # what an endpoint raised outside a task; the task raises it again
JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")
MODEL_REF = "#/components/schemas/{model}"
Model = TypeVar("Model", bound=BaseModel)
Answer = type[BaseModel] | str  # a JSON model, or the media type of another body


class ImmediateAnswer(NamedTuple):
    """A complete answer: its header lines, encoded, and its body."""

    head: bytes
    body: bytes
    status: int = 200


class BatchAnswer(NamedTuple):
    """An answer that is made of a batch's result, when the batch ends."""

    result: "asyncio.Future[Any]"
    make: Callable[[Any], ImmediateAnswer]


def encode_head(*fields: tuple[bytes, bytes]) -> bytes:
    """The header lines of an `ImmediateAnswer`."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Sends a complete response."""
    head = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def limited_body(receive: Receive, limit: int, *, what: str = "The body") -> Receive:
    """`receive` that raises `BodyTooLarge` past `limit` bytes."""
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise BodyTooLarge(f"{what} may have at most {limit} bytes.")
        return message

    return counted


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


async def read_model(receive: Receive, model: type[Model]) -> Model:
    """The JSON body as `model`. Raises `RequestValidationError` as FastAPI does for its own endpoints, so that the
    problem looks the same.
    """
    return parse_model(await read_body(receive), model)


def parse_model(body: bytes, model: type[Model]) -> Model:
    """As `read_model`, for a body that was read already."""
    try:
        return model.model_validate_json(body)
    except ValidationError as refused:
        errors = refused.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None


class FastRoute(Route):
    """A public fast route and its OpenAPI operation.

    `answers` maps a status to its description and body; `refusals` maps the status of a problem to when it happens.
    Path parameters that are not among `parameters` are strings. Statuses and credentials that follow from path and
    method are added for every route by `api_document`.
    """

    def __init__(
        self, method: str, path: str, endpoint: ASGIApp, *, tag: str, summary: str, description: str = "",
        answers: Mapping[int, tuple[str, Answer | None]], refusals: Mapping[int, str] | None = None,
        body: type[BaseModel] | None = None, body_required: bool = True,
        parameters: Sequence[Mapping[str, Any]] = (), security: Sequence[Mapping[str, list[str]]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(path, endpoint, methods=[method])
        self.method, self.body = method.lower(), body
        self.models = {kind for _, kind in answers.values() if isinstance(kind, type)} | ({body} if body else set())
        named = {parameter["name"] for parameter in parameters}
        in_path = [path_parameter(name) for name in self.param_convertors if name not in named]
        responses: dict[str, Any] = {str(status): _response(*answer) for status, answer in answers.items()}
        responses |= {str(status): {"description": when} for status, when in (refusals or {}).items()}
        self.operation: dict[str, Any] = {
            "tags": [tag], "summary": summary, "parameters": [*in_path, *parameters], "responses": responses,
        }  # fmt: skip
        if description:
            self.operation["description"] = description
        if security is not None:
            self.operation["security"] = security
        if body is not None:
            self.operation["requestBody"] = {"required": body_required, "content": _content(body)}


def path_parameter(name: str, pattern: str = "") -> dict[str, Any]:
    """The OpenAPI of a path parameter."""
    matching = {"pattern": f"^{pattern}$"} if pattern else {}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", **matching}}


def _response(description: str, kind: Answer | None) -> dict[str, Any]:
    return {"description": description, **({"content": _content(kind)} if kind is not None else {})}


def _content(kind: Answer) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": MODEL_REF.format(model=kind.__name__)}}}


class FastRoutes:
    """Finds the fast route of a request and runs its endpoint.

    An endpoint may also have `answer_now(scope)` for requests without a body: its answer if that takes no waiting, a
    `BatchAnswer` if it waits for nothing but a batch, else None. A server that knows it (`onsale.server`) then needs
    no task and no messages for this request.
    """

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

    def answer_now(self, scope: Scope) -> ImmediateAnswer | BatchAnswer | None:
        """The answer of the route that `matches` found, if it needs no task. What raises is raised again by the task,
        which answers a problem or logs a bug.
        """
        immediate = getattr(scope["endpoint"], "answer_now", None)
        if immediate is None:
            return None
        try:
            found: ImmediateAnswer | BatchAnswer | None = immediate(scope)
        except Exception as raised:  # noqa: BLE001
            scope[RAISED_KEY] = raised
            return None
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if RAISED_KEY in scope:
                raise scope.pop(RAISED_KEY)
            await scope["route"].app(scope, receive, send)
        except Exception as raised:
            handlers = self._app.exception_handlers
            expected = (kind for kind in type(raised).__mro__ if kind in handlers and kind is not Exception)
            handler = handlers.get(next(expected, None))
            if handler is None or scope.get(STARTED_KEY):
                raise
            response = await handler(Request(scope, receive), raised)  # type: ignore[misc]
            await response(scope, receive, send)
