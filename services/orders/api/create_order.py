"""`POST /orders`: creates an order; it is charged in the background.

A fast route, written as an ASGI class because everybody calls it in the same minute. Requests of the same moment share
their batches.
"""

from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.orders.api.orders import accepted_draft, accepted_order, accepted_response
from services.orders.checkout.requests import NewOrder
from services.orders.order.references import idempotency_key
from services.orders.state import State
from shared.web.client_address import client_address
from shared.web.fast_routes import JSON, QUIET_KEY, answer, read_body

_NEW_ORDER: TypeAdapter[NewOrder] = TypeAdapter(NewOrder)


class CreateOrderRoute:
    """Authenticates, reads the body and answers 202. Problems rise to the app's exception handlers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        state: State = scope["app"].state.deps
        request = Request(scope)
        body = _read(await read_body(receive))
        customers = await state.authenticator.customers(request, lapsed_s=state.settings.lapsed_pass_s)
        key = idempotency_key(request.headers.get("idempotency-key"))
        address = client_address(scope, state.settings.trusted_proxies)
        made = await state.checkout.order(customers, key, body, address=address)
        accepted = accepted_draft(made.draft) if made.draft else await accepted_order(state, made.reference)
        headers, answered = accepted_response(state, accepted, replayed=made.replayed)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await answer(send, 202, orjson.dumps(answered), JSON, *fields)


def _read(raw: bytes) -> NewOrder:
    """Raises `RequestValidationError`, as FastAPI does for its own endpoints, so that the problem looks the same."""
    try:
        return _NEW_ORDER.validate_json(raw)
    except ValidationError as refused:
        errors = refused.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None


CREATE_ORDER = Route("/orders", CreateOrderRoute(), methods=["POST"])


def answer_schema(model: str) -> dict[str, Any]:
    """The content of a response in OpenAPI, by the name of a model that another endpoint answers too."""
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}}


def operation() -> dict[str, Any]:
    """The operation for OpenAPI."""
    body = NewOrder.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = body.pop("$defs")
    body["properties"] |= {"customer": parts["CustomerDetails"], "payment": parts["Payment"]}
    key = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255}}
    return {
        "tags": ["orders"],
        "summary": "Create an order; it is charged in the background",
        "parameters": [key],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "202": {
                "description": "Accepted, or accepted before under this key (Idempotency-Replayed: true)",
                **answer_schema("OrderAccepted"),
            },
            "400": {"description": "No Idempotency-Key, or a body that is not JSON"},
            "401": {"description": "No credential, or an invalid one"},
            "404": {"description": "There is no such reservation, or it is not yours"},
            "409": {"description": "The price changed, another order is in progress, or the same key is in use"},
            "410": {"description": "The hold has expired"},
            "422": {"description": "A value is invalid, or the key was used with another body"},
            "503": {"description": "Try again after Retry-After"},
        },
    }
