"""The hot calls, told in OpenAPI all the same: FastAPI sees only its own function endpoints."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.orders.api.create_order import PLACE, operation
from services.orders.api.read_order import LOOK
from services.orders.payments.webhook_inbox import WEBHOOK
from shared.web.routes import REFERENCE


def _in_path(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{pattern}$"}}


OPERATIONS: dict[str, dict[str, Any]] = {
    PLACE.path: {"post": operation()},
    LOOK.path: {
        "get": {
            "tags": ["orders"],
            "summary": "Get an order",
            "parameters": [_in_path("reference", REFERENCE)],
            "responses": {
                "200": {"description": "The order as it is now"},
                "401": {"description": "No credential, or a bad one"},
                "404": {"description": "There is no order with this reference, or it is not yours"},
            },
        }
    },
    WEBHOOK.path: {
        "post": {
            "tags": ["webhooks"],
            "summary": "Receive a payment provider's webhook",
            "parameters": [_in_path("provider", "[a-z]{1,32}")],
            "responses": {
                "200": {"description": "Stored"},
                "401": {"description": "Not signed by the provider, or not lately"},
                "404": {"description": "There is no provider of this name"},
            },
        }
    },
}


def document_hot_calls(app: FastAPI) -> None:
    """Adds them to `/openapi.json`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path, operations in OPERATIONS.items():
                schema["paths"].setdefault(path, {}).update(operations)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
