"""Fast routes: what a crowd calls, answered past the framework.

A handler gets the `Request` and returns an `Answer`, a `Later`, or an awaitable of an answer; a stream is an ASGI app
instead. A route declares its OpenAPI operation, because the framework documents only its own endpoints; the framework
knows the route by its path and method, for its 405. Every other request goes to the framework.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.routing import Route
from starlette.types import ASGIApp

from shared.web.answers import Answer, Later
from shared.web.request import Request

MODEL_REF = "#/components/schemas/{model}"
Content = type[BaseModel] | str  # of an answer: a JSON model, or the media type of another body
Found = Answer | Later | ASGIApp
Handler = Callable[[Request], Found | Awaitable[Found]]
STREAM = "text/event-stream"


class FastRoute(Route):
    """A fast route and its OpenAPI operation.

    `answers` maps a status to its description and body; `refusals` maps the status of a problem to when it happens.
    Path parameters are strings, of the form that `patterns` has for them. `query` is a model of the query's parameters.
    Statuses and credentials that follow from path and method are added for every route by `api_document`.
    """

    def __init__(
        self, method: str, path: str, handler: Handler, *, tag: str = "", summary: str = "",
        description: str | None = None, answers: Mapping[int, tuple[str, Content | None]] | None = None,
        refusals: Mapping[int, str] | None = None, body: type[BaseModel] | None = None, body_required: bool = True,
        patterns: Mapping[str, str] | None = None, query: type[BaseModel] | None = None,
        parameters: Sequence[Mapping[str, Any]] = (),
        security: Sequence[Mapping[str, list[str]]] | None = None, in_schema: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(path, handler, methods=[method], include_in_schema=in_schema)
        self.handler, self.method = handler, method.lower()
        known, answers = patterns or {}, answers or {}
        formed = [name for name in self.param_convertors if name in known]
        self.patterns = [(name, known[name], re.compile(known[name])) for name in formed]
        self.models = {kind for kind in (body, *(kind for _, kind in answers.values())) if isinstance(kind, type)}
        described = {parameter["name"] for parameter in parameters}
        named = [path_parameter(name, known.get(name)) for name in self.param_convertors if name not in described]
        responses: dict[str, Any] = {str(status): _response(*answer) for status, answer in answers.items()}
        responses |= {str(status): {"description": when} for status, when in (refusals or {}).items()}
        optional = {
            "parameters": [*named, *(_query_parameters(query) if query else ()), *parameters] or None,
            "description": description, "security": security,
            "requestBody": {"required": body_required, "content": _content(body)} if body else None,
        }  # fmt: skip
        given = {name: value for name, value in optional.items() if value is not None}
        self.operation: dict[str, Any] = {"tags": [tag], "summary": summary, "responses": responses, **given}


def path_parameter(name: str, pattern: str | None = None) -> dict[str, Any]:
    """The OpenAPI of a path parameter."""
    matching = {"pattern": pattern} if pattern else {}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", **matching}}


def without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """As the framework writes it: what may be null is so if it is left out."""
    return {name: value for name, value in schema.items() if name != "default" or value is not None}


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    return [
        {
            "name": name, "in": "query", "required": False,
            **({"description": text} if (text := schema.get("description")) else {}), "schema": without_null(schema),
        }
        for name, schema in model.model_json_schema()["properties"].items()
    ]  # fmt: skip


def _response(description: str, kind: Content | None) -> dict[str, Any]:
    return {"description": description, **({"content": _content(kind)} if kind is not None else {})}


def _content(kind: Content) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": {"type": "string", **({} if kind == STREAM else {"format": "binary"})}}}
    return {"application/json": {"schema": {"$ref": MODEL_REF.format(model=kind.__name__)}}}
