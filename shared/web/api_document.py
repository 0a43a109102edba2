"""Completes every OpenAPI document with what FastAPI does not know: fast routes, security, problems (RFC 9457)."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from shared.web.fast_routes import MODEL_REF, FastRoute, without_null

METHODS = ("get", "post", "put", "patch", "delete")
SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "adminKey": {"type": "http", "scheme": "bearer", "description": "An operator's key."},
    "queueToken": {"type": "http", "scheme": "bearer", "description": "Issued on joining the line."},
    "pass": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Admission to buy."},
    "orderToken": {"type": "http", "scheme": "bearer", "description": "Of one order, issued on placing it."},
    "userJwt": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Issued by your identity provider.",
    },
    "queueCookie": {"type": "apiKey", "in": "cookie", "name": "onsale_queue_{event_id}"},
    "passCookie": {"type": "apiKey", "in": "cookie", "name": "onsale_pass_{event_id}"},
}
BUYER = ("pass", "passCookie", "queueToken", "queueCookie", "userJwt")
NEEDS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), schemes)
    for pattern, schemes in (
        (r"/(admin|console)/.*", ("adminKey",)),
        (r"/events/\{event_id\}/(reservations.*|map/(state|reserved)|sections/\{section_id\}/seats)", BUYER),
        (r"/reminders", BUYER),
        (r"/orders/events/.*", ()),
        (r"/orders(/quote)?", BUYER),
        (r"/orders/.*", ("orderToken", *BUYER)),
    )
)
REFUSALS = {
    400: "The request could not be read.",
    401: "There is no credential, or not a valid one.",
    403: "This credential may not do that, or not now.",
    404: "There is nothing with this id, or it is not yours.",
    409: "The present state does not allow it.",
    410: "It has ended.",
    412: "It was changed after you read it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is not valid.",
    429: "Too many requests. Wait the seconds in Retry-After.",
    503: "Temporarily unavailable; nothing was changed. Wait the seconds in Retry-After.",
}
PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457). Further members depend on `type`.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "description": "Links to its documentation."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence for a person."},
        "request_id": {"type": ["string", "null"]},
    },
    "additionalProperties": True,
}
AS_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}, "description": "Seconds."}}


def file_of(media_type: str) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that answers with a file; it also needs `response_class=Response`."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}}


def complete_openapi(app: FastAPI, form_paths: Sequence[str] = ()) -> None:
    """Makes `/openapi.json` complete. `form_paths`: regular expressions of the paths that also take forms
    and answer these with a redirect.
    """
    framework = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = framework()
            _add_fast_routes(
                document, [each for each in app.routes if isinstance(each, FastRoute) and each.include_in_schema]
            )
            _complete(document)
            _add_forms(document, form_paths)
        return framework()

    app.openapi = openapi  # type: ignore[method-assign]


def _add_fast_routes(document: dict[str, Any], routes: Sequence[FastRoute]) -> None:
    models = sorted({model for route in routes for model in route.models}, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=MODEL_REF)
    made = document.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in schemas.get("$defs", {}).items():
        parts = {key: without_null(part) for key, part in schema.get("properties", {}).items()}
        made[name] = schema | ({"properties": parts} if parts else {})
    for route in routes:
        document["paths"].setdefault(route.path, {})[route.method] = copy.deepcopy(route.operation)


def _add_forms(document: dict[str, Any], form_paths: Sequence[str]) -> None:
    for path, method, operation in operations(document):
        example = re.sub(r"\{[a-z_]+\}", "0" * 32, path)
        if method == "post" and any(re.fullmatch(form_path, example) for form_path in form_paths):
            operation["responses"]["303"] = {"description": "To a form of our own pages: the page that follows"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of each route."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def _complete(document: dict[str, Any]) -> None:
    components = document["components"]
    components["schemas"]["Problem"] = PROBLEM
    components["securitySchemes"] = SECURITY_SCHEMES
    document["servers"] = [{"url": "/"}]
    for path, method, operation in operations(document):
        if not path.startswith(("/admin/", "/console/")):  # where the routes say it
            operation["operationId"] = "_".join(re.findall(r"[a-z0-9]+", f"{method} {path}".lower()))
        needed = next((schemes for pattern, schemes in NEEDS if pattern.fullmatch(path)), ())
        if needed and "security" not in operation:
            operation["security"] = [{scheme: []} for scheme in needed]
        declared = operation.setdefault("responses", {})
        for content in (each.get("content", {}) for each in declared.values()):
            if "text/event-stream" in content and "application/json" in content:  # the model is that of its messages
                content["text/event-stream"] = content.pop("application/json")
        refusals = _refusals(path, method, operation, components["schemas"])
        for status in sorted({*refusals, *(int(s) for s in declared if int(s) >= 400)}):
            described = declared.get(str(status), {}).get("description", "")
            refusal: dict[str, Any] = {"description": _description(described, status), "content": AS_PROBLEM}
            if status in (429, 503):
                refusal["headers"] = RETRY_AFTER
            declared[str(status)] = refusal
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)


def _description(declared: str, status: int) -> str:
    return declared if declared and declared != "Validation Error" else REFUSALS.get(status, "Refused.")


def _refusals(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> set[int]:
    """The error statuses such an operation may answer, besides those it declares."""
    secured, changes = bool(operation.get("security")), method != "get"
    may = {
        401: secured, 403: secured, 404: "{" in path, 409: changes, 410: changes,
        412: _has_version(operation, schemas), 413: changes,
    }  # fmt: skip
    return {400, 422, 429, 503, *(status for status, happens in may.items() if happens)}


def _has_version(operation: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a request may name the version that its sender read: in `If-Match`, or as `version` in its body."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    read = schemas.get(body.get("$ref", "").rpartition("/")[2], body)
    in_header = any(parameter["name"].lower() == "if-match" for parameter in operation.get("parameters", ()))
    return in_header or "version" in read.get("properties", {})
