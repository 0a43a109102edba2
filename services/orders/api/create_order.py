"""`POST /orders`: creates an order; it is charged in the background.

A fast route, written as an ASGI class because everybody calls it in the same minute. Requests of the same moment share
their batches.
"""

import orjson
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from services.orders.api.orders import accepted_response
from services.orders.api.schemas import OrderAccepted
from services.orders.checkout.requests import NewOrder
from services.orders.state import State
from shared.runtime.logging import FACTS_KEY, sale_log
from shared.security.client_address import client_address
from shared.web.fast_routes import JSON, QUIET_KEY, FastRoute, answer, read_model
from shared.web.languages import language_of
from shared.web.parameters import idempotency_key


class CreateOrderRoute:
    """Authenticates, reads the body and answers 202. Problems rise to the app's exception handlers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        state: State = scope["app"].state.deps
        request = Request(scope)
        body = await read_model(receive, NewOrder)
        customers = await state.authenticator.customers(request, lapsed_s=state.tuning.lapsed_pass_s)
        key = idempotency_key(request.headers.get("idempotency-key"))
        address = client_address(scope, state.settings.trusted_proxies)
        made = await state.checkout.order(
            customers, key, body, address=address, language=body.language or language_of(scope)
        )
        if sale_log.on:
            event_id = made.order.event_id if made.order else next((each.event_id for each in customers), None)
            scope[FACTS_KEY] = {"event_id": event_id, "reference": made.reference, "repeated": made.replayed}
        headers, answered = await accepted_response(state, made.reference, replayed=made.replayed, order=made.order)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await answer(send, 202, orjson.dumps(answered), JSON, *fields)


IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255},
}  # fmt: skip
CREATE_ORDER = FastRoute(
    "POST", "/orders", CreateOrderRoute(), tag="orders", summary="Create an order; it is charged in the background",
    parameters=[IDEMPOTENCY_KEY], body=NewOrder,
    answers={202: ("Accepted, or accepted before under this key (Idempotency-Replayed: true)", OrderAccepted)},
    refusals={
        400: "No Idempotency-Key, or a body that is not JSON",
        401: "No credential, or an invalid one",
        404: "There is no such reservation, or it is not yours",
        409: "The price changed, another order is in progress, or the same key is in use",
        410: "The hold has expired",
        422: "A value is invalid, or the key was used with another body",
        503: "Try again after Retry-After",
    },
)  # fmt: skip
