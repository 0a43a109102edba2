"""`POST /orders`: creates an order; it is charged in the background.

Everybody calls it in the same minute. Requests of the same moment share their batches.
"""

from services.orders.api.orders import accepted, key_of
from services.orders.api.schemas import OrderAccepted
from services.orders.checkout.requests import NewOrder
from services.orders.state import State
from shared.security.client_address import client_address
from shared.web.answers import Answer
from shared.web.fast_routes import FastRoute
from shared.web.parameters import language_of
from shared.web.request import Request


async def create_order(request: Request) -> Answer:
    """Authenticates, reads the body and answers 202."""
    state: State = request.state
    body = await request.json(NewOrder)
    customers = await state.authenticator.customers(request, lapsed_s=state.tuning.lapsed_pass_s)
    key = key_of(request)
    address = client_address(request.scope, state.settings.trusted_proxies)
    language = body.language or language_of(request.scope)
    made = await state.checkout.order(customers, key, body, address=address, language=language)
    event_id = made.order.event_id if made.order else next((each.event_id for each in customers), None)
    request.facts = {"event_id": event_id, "reference": made.reference, "repeated": made.replayed}
    return await accepted(state, made.reference, replayed=made.replayed, order=made.order)


IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255},
}  # fmt: skip
CREATE_ORDER = FastRoute(
    "POST", "/orders", create_order, tag="orders", summary="Create an order; it is charged in the background",
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
