"""`POST /orders`: the call that everybody makes in the same minute.

An ASGI class, as crowds come here; what it does for one fan it shares with all who come at the same moment.
"""

from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.orders.api.orders import accepted, as_it_is, as_placed
from services.orders.api.schemas import NewOrder
from services.orders.order.references import idempotency_key
from services.orders.state import State
from shared.web.client_address import client_address
from shared.web.fast_routes import JSON, QUIET_KEY, answer, whole_body

_NEW_ORDER: TypeAdapter[NewOrder] = TypeAdapter(NewOrder)


class CreateOrderRoute:
    """Orders a reservation; it is charged in the background. Problems rise to the app's handlers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        state: State = scope["app"].state.deps
        request = Request(scope)
        asked = _read(await whole_body(receive))
        buyers = await state.callers.customers(request, lapsed_s=state.settings.lapsed_pass_s)
        key = idempotency_key(request.headers.get("idempotency-key"))
        address = client_address(scope, state.settings.trusted_proxies)
        made = await state.checkout.order(buyers, key, asked, address=address)
        seen = as_placed(made.placed) if made.placed else await as_it_is(state, made.reference)
        headers, told = accepted(state, seen, replayed=made.replayed)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await answer(send, 202, orjson.dumps(told), JSON, *fields)


def _read(raw: bytes) -> NewOrder:
    """Raises what the framework raises for its own endpoints, so that it is told alike."""
    try:
        return _NEW_ORDER.validate_json(raw)
    except ValidationError as refused:
        errors = refused.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None


PLACE = Route("/orders", CreateOrderRoute(), methods=["POST"])


def operation() -> dict[str, Any]:
    """The call as OpenAPI tells it."""
    body = NewOrder.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = body.pop("$defs")
    body["properties"] |= {"customer": parts["Customer"], "payment": parts["Payment"]}
    key = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255}}
    return {
        "tags": ["orders"],
        "summary": "Create an order; it is charged in the background",
        "parameters": [key],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "202": {"description": "Taken, or taken before under this key (Idempotency-Replayed: true)"},
            "400": {"description": "No Idempotency-Key, or a body that is not JSON"},
            "401": {"description": "No credential, or a bad one"},
            "404": {"description": "There is no such reservation, or it is not yours"},
            "409": {"description": "Another price than was shown, another order under way, or the same key just now"},
            "410": {"description": "The hold has ended"},
            "422": {"description": "A value is not acceptable, or the key was used with another body"},
            "503": {"description": "Try again; see Retry-After"},
        },
    }
