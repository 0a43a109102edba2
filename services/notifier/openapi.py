"""OpenAPI of the streams, which FastAPI does not know; added to the same document."""

from typing import Any

from fastapi import FastAPI

from services.notifier.api import EVENT_PATH, ORDER_PATH

STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The last received id, `<epoch>.<version>`; browsers send it when they reconnect.",
}
SECTIONS = {
    "name": "sections",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Only these sections: at most 50, separated by commas.",
}


def document_streams(app: FastAPI) -> None:
    """Adds the streams to `/openapi.json`."""
    framework = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            framework()["paths"].update(_paths())
        return framework()

    app.openapi = openapi  # type: ignore[method-assign]


def _paths() -> dict[str, Any]:
    event = _stream(
        "Stream the line and the sections of an event",
        "A snapshot, then at most one frame per window, with the events `line`, `sections` and `notice`.",
        [_in_path("event_id"), SECTIONS, LAST_EVENT_ID],
        {422: "Malformed sections filter"},
    )
    order = _stream(
        "Stream an order",
        "Its state, then every change, with the event `order`.",
        [_in_path("reference"), LAST_EVENT_ID],
        {},
    )
    return {EVENT_PATH: {"get": event}, ORDER_PATH: {"get": order}}


def _stream(summary: str, words: str, parameters: list[dict[str, Any]], refusals: dict[int, str]) -> dict[str, Any]:
    known = {
        401: "No credential, or not a valid one",
        403: "The credential is for another event or order",
        404: "Unknown event or order",
        **refusals,
    }
    responses: dict[str, Any] = {"200": {"description": words, "content": STREAM}}
    responses.update({str(status): {"description": refusal} for status, refusal in known.items()})
    return {"tags": ["streams"], "summary": summary, "parameters": parameters, "responses": responses}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
