"""`GET /orders/{reference}`: answers one order to its owner, who polls it until it is `confirmed`.

Every buyer polls it. An order that this process works on is answered from memory; others that are read at the same
moment are read by one statement.
"""

import re

from services.orders.model.order import Order
from services.orders.model.view import order_view
from services.orders.problems import UnknownOrder
from services.orders.state import State
from shared.contracts.orders import OrderView
from shared.errors.problems import InvalidRequest
from shared.routes import REFERENCE
from shared.security.credentials import bearer, cookie, order_cookie, set_cookie
from shared.security.tokens import sign_order_token
from shared.web.answers import NO_STORE, Answer, json_answer
from shared.web.fast_routes import FastRoute, path_parameter
from shared.web.parameters import REFERENCE_PATTERN
from shared.web.request import Request

COOKIE_MAX_AGE_S = 400 * 86_400  # as long as browsers keep any
_REFERENCE = re.compile(REFERENCE)


async def read_own_order(request: Request) -> Order:
    """The customer's own order. Raises `UnknownOrder` for anybody else's, and what `CustomerAuthenticator` raises."""
    state: State = request.state
    return await _require_own(state, request, await state.store.read(request.path["reference"]))


async def _require_own(state: State, request: Request, order: Order | None) -> Order:
    if order is None:
        await state.authenticator.require_any(request)
        raise UnknownOrder
    await state.authenticator.require_owner(request, order)
    return order


def order_cookie_header(state: State, reference: str, token: str) -> str:
    """`set-cookie` for the cookie by which a browser opens this order."""
    secure = state.settings.secure_cookies
    return set_cookie(order_cookie(reference, secure=secure), token, max_age_s=COOKIE_MAX_AGE_S, secure=secure)


async def read_order(request: Request) -> Answer:
    """Answers an `OrderView`. A browser that shows its pass gets the order's own cookie, which lasts longer."""
    reference = request.path["reference"]
    if not _REFERENCE.fullmatch(reference):
        raise InvalidRequest("reference: this is not an order reference. Copy it from the order page or the mail.")
    state: State = request.state
    order = await _require_own(state, request, state.worker.known(reference) or await state.store.read(reference))
    fields = request.fields
    known = bearer(fields) or cookie(fields, order_cookie(reference, secure=state.settings.secure_cookies))
    kept = [] if known else [(b"set-cookie", _own_cookie(state, reference).encode())]
    return json_answer(order_view(order), NO_STORE, *kept)


def _own_cookie(state: State, reference: str) -> str:
    return order_cookie_header(state, reference, sign_order_token(state.settings.order_token_keys, reference))


READ_ORDER = FastRoute(
    "GET", "/orders/{reference}", read_order, tag="orders", summary="Get an order",
    parameters=[path_parameter("reference", REFERENCE_PATTERN)], answers={200: ("The current order", OrderView)},
    refusals={
        401: "No credential, or an invalid one",
        404: "There is no order with this reference, or it is not yours",
    },
)  # fmt: skip
