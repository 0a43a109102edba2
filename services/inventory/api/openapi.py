"""The OpenAPI entry of the fast route that reserves: FastAPI documents only its own function endpoints."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.inventory.api.reservations import Reserve
from services.inventory.api.schemas import ReservationView, ReserveBody

HELD = (
    "Held until `reserved_until`. For a request with a queue token or user JWT, `Onsale-Pass` has the pass and"
    " `Onsale-Checkout-Key` its checkout key"
)
RESERVATION = f"#/components/schemas/{ReservationView.__name__}"
REFUSALS = {
    "401": "The credential is missing or invalid",
    "403": "Not admitted yet (see Retry-After), or the credential is for another event",
    "404": "Unknown event or section, or a signed-in fan who is not in the line",
    "409": "seats-taken, no-adjacent-seats, sold-out or limit-exceeded: nothing was reserved",
    "410": "The place in the line has ended, or the waiting room was reset",
    "422": "A value is invalid, or the Idempotency-Key was used with another body",
    "503": "The stock is being rebuilt, or too many requests wait; see Retry-After",
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
    body = ReserveBody.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = body.pop("$defs")
    body["properties"]["ga"]["items"] = parts["GaTickets"]
    body["properties"]["best_available"] = parts["BestAvailable"]
    return {
        "tags": ["reservations"],
        "summary": "Reserve seats and GA tickets, all or none",
        "parameters": PARAMETERS,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"201": {"description": HELD, "content": {"application/json": {"schema": {"$ref": RESERVATION}}}}}
        | {status: {"description": why} for status, why in REFUSALS.items()},
    }
