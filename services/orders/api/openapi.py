"""OpenAPI of the fast routes: FastAPI documents only its own function endpoints, so these are added by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.orders.api.create_order import CREATE_ORDER, answer_schema, operation
from services.orders.api.payment_webhooks import PAYMENT_WEBHOOKS
from services.orders.api.read_order import READ_ORDER
from services.orders.api.schemas import WebhookStored
from shared.web.routes import REFERENCE


def _in_path(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{pattern}$"}}


OPERATIONS: dict[str, dict[str, Any]] = {
    CREATE_ORDER.path: {"post": operation()},
    READ_ORDER.path: {
        "get": {
            "tags": ["orders"],
            "summary": "Get an order",
            "parameters": [_in_path("reference", REFERENCE)],
            "responses": {
                "200": {"description": "The current order", **answer_schema("OrderView")},
                "401": {"description": "No credential, or an invalid one"},
                "404": {"description": "There is no order with this reference, or it is not yours"},
            },
        }
    },
    PAYMENT_WEBHOOKS.path: {
        "post": {
            "tags": ["webhooks"],
            "summary": "Receive a payment provider's webhook",
            "parameters": [_in_path("provider", "[a-z]{1,32}")],
            "responses": {
                "200": {"description": "Stored", **answer_schema(WebhookStored.__name__)},
                "401": {"description": "Not signed by the provider, or its signature is too old"},
                "404": {"description": "There is no payment provider with this name"},
            },
        }
    },
}


def document_hot_calls(app: FastAPI) -> None:
    """Adds the fast routes to `/openapi.json`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            for path, operations in OPERATIONS.items():
                schema["paths"].setdefault(path, {}).update(operations)
            schema["components"]["schemas"][WebhookStored.__name__] = WebhookStored.model_json_schema()
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
