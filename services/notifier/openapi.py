"""The documentation of the streams, which FastAPI cannot see: the same document as everything else."""

from typing import Any

from fastapi import FastAPI

from services.notifier.api import EVENT_PATH, ORDER_PATH

STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The last id heard, `<epoch>.<version>`; browsers send it when they reconnect.",
}
SECTIONS = {
    "name": "sections",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Only these sections, separated by commas, at most 50.",
}


def document_streams(app: FastAPI) -> None:
    """Makes `/openapi.json` tell of the streams."""
    framework = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            framework()["paths"].update(_paths())
        return framework()

    app.openapi = openapi  # type: ignore[method-assign]


def _paths() -> dict[str, Any]:
    event = _stream(
        "Hear the line and the sections of an event",
        "First a snapshot, then at most one frame a window: `line`, `sections`, `notice`.",
        [_in_path("event_id"), SECTIONS, LAST_EVENT_ID],
        {422: "Malformed sections filter"},
    )
    order = _stream(
        "Hear of an order", "First its state, then every change: `order`.", [_in_path("reference"), LAST_EVENT_ID], {}
    )
    return {EVENT_PATH: {"get": event}, ORDER_PATH: {"get": order}}


def _stream(summary: str, words: str, parameters: list[dict[str, Any]], refusals: dict[int, str]) -> dict[str, Any]:
    known = {401: "No credential, or not a valid one", 403: "Of something else", 404: "Unknown", **refusals}
    responses: dict[str, Any] = {"200": {"description": words, "content": STREAM}}
    responses.update({str(status): {"description": refusal} for status, refusal in known.items()})
    return {"tags": ["streams"], "summary": summary, "parameters": parameters, "responses": responses}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
