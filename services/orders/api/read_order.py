"""`GET /orders/{reference}`: answers one order to its owner, who polls it until it is `confirmed`.

A fast route, written as an ASGI class because every buyer polls it. Orders that are read at the same moment are read by
one statement.
"""

import re

import orjson
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from services.orders.order.next_step import Order
from services.orders.order.view import order_view
from services.orders.problems import UnknownOrder
from services.orders.state import State
from shared.contracts.orders import OrderView
from shared.web.fast_routes import JSON, NO_STORE, QUIET_KEY, FastRoute, answer, path_parameter
from shared.web.problems import InvalidRequest
from shared.web.routes import REFERENCE

_REFERENCE = re.compile(REFERENCE)


async def read_own_order(state: State, request: Request, reference: str) -> Order:
    """The customer's own order. Raises `UnknownOrder` for anybody else's, and what `CustomerAuthenticator` raises."""
    order = await state.repository.read(reference)
    if order is None:
        await state.authenticator.require_any(request)
        raise UnknownOrder
    await state.authenticator.require_owner(request, order)
    return order


class ReadOrderRoute:
    """Answers an `OrderView` as bytes. Problems rise to the app's exception handlers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        reference = scope["path_params"]["reference"]
        if not _REFERENCE.fullmatch(reference):
            raise InvalidRequest("reference: this is not an order reference. Copy it from the order page or the mail.")
        order = await read_own_order(scope["app"].state.deps, Request(scope), reference)
        await answer(send, 200, orjson.dumps(order_view(order)), JSON, NO_STORE)


READ_ORDER = FastRoute(
    "GET", "/orders/{reference}", ReadOrderRoute(), tag="orders", summary="Get an order",
    parameters=[path_parameter("reference", REFERENCE)], answers={200: ("The current order", OrderView)},
    refusals={
        401: "No credential, or an invalid one",
        404: "There is no order with this reference, or it is not yours",
    },
)  # fmt: skip
