"""The hot call, told in OpenAPI all the same: FastAPI sees only its own function endpoints."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.inventory.api.reservations import Reserve
from services.inventory.api.schemas import ReservationAsk

HELD = (
    "Held until `reserved_until`. Whoever came with a queue token or user JWT finds the pass in `Onsale-Pass` and its"
    " checkout key in `Onsale-Checkout-Key`"
)
REFUSALS = {
    "401": "No credential, or a bad one",
    "403": "Not called yet (see Retry-After), or another event's credential",
    "404": "No such event or section, or a signed-in fan without a place in its line",
    "409": "seats-taken, no-adjacent-seats, sold-out or limit-exceeded: nothing was taken",
    "410": "The place in the line has ended, or the room was reset",
    "422": "A value is not acceptable, or the Idempotency-Key was used with another body",
    "503": "The stock is being counted anew, or too many wait; see Retry-After",
}
PARAMETERS = [
    {"name": "event_id", "in": "path", "required": True, "schema": {"type": "string"}},
    {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {"type": "string", "maxLength": 200}},
]


def document_reserve(app: FastAPI) -> None:
    """Adds `POST /events/{event_id}/reservations` to `/openapi.json`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schema["paths"].setdefault(Reserve.path, {})["post"] = _operation()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation() -> dict[str, Any]:
    body = ReservationAsk.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = body.pop("$defs")
    body["properties"]["ga"]["items"] = parts["GaAsk"]
    body["properties"]["best_available"] = parts["BestAvailable"]
    return {
        "tags": ["reservations"],
        "summary": "Reserve seats and GA tickets, all or none",
        "parameters": PARAMETERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"201": {"description": HELD}}
        | {status: {"description": why} for status, why in REFUSALS.items()},
    }
