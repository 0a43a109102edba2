"""`GET /orders/{reference}`: what every buyer asks again and again until it says `confirmed`.

An ASGI class, as crowds come here; orders that are asked for at the same moment are read by one statement.
"""

import re

import orjson
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.orders.order.next_step import Order
from services.orders.order.view import order_view
from services.orders.problems import UnknownOrder
from services.orders.state import State
from shared.web.fast_routes import JSON, NO_STORE, QUIET_KEY, answer
from shared.web.problems import InvalidRequest
from shared.web.routes import REFERENCE

_REFERENCE = re.compile(REFERENCE)


async def owned(state: State, request: Request, reference: str) -> Order:
    """The caller's own order. Raises `UnknownOrder` for anybody else's, or what `CustomerAuthenticator` raises."""
    order = await state.book.read(reference)
    if order is None:
        await state.callers.require_any(request)
        raise UnknownOrder
    await state.callers.require_owner(request, order)
    return order


class ReadOrderRoute:
    """Answers with bytes; problems rise to the app's handlers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        reference = scope["path_params"]["reference"]
        if not _REFERENCE.fullmatch(reference):
            raise InvalidRequest("reference: this cannot be one.")
        order = await owned(scope["app"].state.deps, Request(scope), reference)
        await answer(send, 200, orjson.dumps(order_view(order)), JSON, NO_STORE)


LOOK = Route("/orders/{reference}", ReadOrderRoute(), methods=["GET"])
