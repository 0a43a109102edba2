"""The fans' API of orders: quote, order, read, list, cancel, and pay again; and what payment providers report.

Everybody orders in the same minute: requests of the same moment share their batches. An order that this process works
on is read from memory.
"""

from functools import partial
from inspect import getdoc
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from starlette.datastructures import Headers

from services.orders.checkout.requests import (
    CheckSpelling,
    NewOrder,
    NewPayment,
    QuoteRequest,
    check_address,
    refuse_card_numbers,
)
from services.orders.model.order import Order, TypeNames
from services.orders.model.view import order_view
from services.orders.pricing.quote import EventRules, TicketsAt, quote_body
from services.orders.problems import UnknownOrder, UnknownProvider
from services.orders.requests.names import change_names
from services.orders.requests.requests import change_address, extend_payment, request_cancel, retry_payment
from services.orders.state import State
from services.orders.tickets.show import read_show
from shared.contracts.event_parts.names import NamesChange
from shared.contracts.event_parts.price_types import PRICE_MINOR_MAX
from shared.contracts.fields import EVENT_ID_PATTERN, Body, Email
from shared.contracts.orders import OrderView, ProviderAnswer, QuoteAnswer
from shared.contracts.prices import PRICE_OF_TYPE, PRICES_MAX, PricesAnswer
from shared.errors.problems import BadCredential, InvalidRequest, NoCredential
from shared.runtime.clock import rfc3339
from shared.security.limits import client_address
from shared.security.tokens import bearer, cookie, order_cookie, set_cookie, sign_order_token
from shared.web.answers import JSON, NO_STORE, Answer, compressed, json_answer
from shared.web.fast_routes import FastRoute, path_parameter
from shared.web.request import REFERENCE_PATTERN, Request, idempotency_key, language_of
from shared.web.request import Field as HeaderField

PRICES_MAX_AGE_S = 10
COOKIE_MAX_AGE_S = 400 * 86_400  # as long as browsers keep any


class OrderAccepted(BaseModel):
    """An accepted order. `order_token` opens it for good; `checkout_url` is where the fan pays, if anywhere."""

    reference: str
    status: str
    order_token: str
    checkout_url: str | None
    expires_at: str
    expires_in_seconds: int
    poll_url: str
    updates_url: str


class OrdersPage(BaseModel):
    """A customer's orders, newest first."""

    page: int
    page_size: int
    orders: list[OrderView]


class ProvidersAnswer(BaseModel):
    """The payment providers that may be used."""

    providers: list[ProviderAnswer]


class WebhookStored(BaseModel):
    """A payment provider's webhook was stored, now or before."""

    stored: Literal[True] = True


class EmailChange(Body):
    """The right e-mail address of an order."""

    email: Email
    check_spelling: CheckSpelling = False


class PageQuery(BaseModel):
    """A page of a customer's orders."""

    page: int = Field(1, ge=1, le=1000)
    page_size: int = Field(20, ge=1, le=100)


STORED = Answer(200, WebhookStored().model_dump_json().encode(), (JSON,))
Minor = Annotated[int, Field(ge=0, le=PRICE_MINOR_MAX)]
MinorOfType = Annotated[str, Field(pattern=PRICE_OF_TYPE)]
Line = Annotated[str, Field(pattern=r"^[0-9]{1,9}x[1-9][0-9]{0,2}(:[a-z][a-z0-9_]{0,23})?$")]


class PricesQuery(BaseModel):
    """Prices of single tickets, of another price type as price:type, and the lines of one order as price x quantity, of
    another price type with :type behind.
    """

    each: list[Minor] | None = Field(None, max_length=PRICES_MAX)
    each_of_type: list[MinorOfType] | None = Field(None, max_length=PRICES_MAX)
    line: list[Line] | None = Field(None, max_length=100)


async def read_own_order(request: Request) -> Order:
    """The customer's own order. Raises `UnknownOrder` for anybody else's, and what `CustomerAuthenticator` raises."""
    state: State = request.state
    return await _require_own(state, request, await state.store.read(request.path["reference"]))


async def _require_own(state: State, request: Request, order: Order | None) -> Order:
    if order is None:
        if state.authenticator.order_of_token(request) is None:
            await state.authenticator.customers(request)
        raise UnknownOrder
    await state.authenticator.require_owner(request, order)
    return order


def order_key(state: State, reference: str) -> tuple[str, HeaderField]:
    """The token that opens this order, and `set-cookie` for the cookie by which a browser does."""
    token, secure = sign_order_token(state.settings.order_token_keys, reference), state.settings.secure_cookies
    cookie = set_cookie(order_cookie(reference, secure=secure), token, max_age_s=COOKIE_MAX_AGE_S, secure=secure)
    return token, (b"set-cookie", cookie.encode())


async def read_order(request: Request) -> Answer:
    """Answers an `OrderView`. A browser that shows its pass gets the order's own cookie, which lasts longer."""
    state: State = request.state
    reference = request.path["reference"]
    order = await _require_own(state, request, state.worker.known(reference) or await state.store.read(reference))
    fields = request.fields
    known = bearer(fields) or cookie(fields, order_cookie(reference, secure=state.settings.secure_cookies))
    kept = [] if known else [order_key(state, reference)[1]]
    return json_answer(order_view(order), NO_STORE, *kept)


async def accepted(state: State, reference: str, *, replayed: bool, order: Order | None = None) -> Answer:
    """An `OrderAccepted`: the order's address, and the token that opens it for good. `order` is an order that this
    request created, as it was written; any other is read. Raises `UnknownOrder`.
    """
    order = order or await state.store.require(reference)
    view, until_ms = order_view(order), order.expires_at_ms
    token, cookie = order_key(state, reference)
    fields = [(b"location", f"/orders/{reference}".encode()), NO_STORE, cookie]
    fields += [(b"idempotency-replayed", b"true")] if replayed else []
    body = {
        "reference": reference, "status": order.status, "order_token": token,
        "checkout_url": (view["attempt"] or {}).get("checkout_url"), "expires_at": rfc3339(until_ms),
        "expires_in_seconds": view["expires_in_seconds"], "poll_url": f"/orders/{reference}",
        "updates_url": f"/orders/{reference}/updates",
    }  # fmt: skip
    return json_answer(body, *fields, status=202)


async def create_order(request: Request) -> Answer:
    """Authenticates, reads the body and answers 202."""
    state: State = request.state
    body = await request.json(NewOrder)
    customers = await state.authenticator.customers(request, lapsed_s=state.tuning.lapsed_pass_s)
    key = idempotency_key(request.header(b"idempotency-key"))
    address = client_address(request.scope, state.settings.trusted_proxies)
    language = body.language or language_of(request.scope)
    made = await state.checkout.order(customers, key, body, address=address, language=language)
    event_id = made.order.event_id if made.order else next((each.event_id for each in customers), None)
    request.facts = {"event_id": event_id, "reference": made.reference, "repeated": made.replayed}
    return await accepted(state, made.reference, replayed=made.replayed, order=made.order)


async def quote(request: Request) -> Answer:
    """Changes nothing. The problem `promo-code-not-valid` says why in `reason`."""
    state: State = request.state
    body = await request.json(QuoteRequest)
    customers = await state.authenticator.customers(request, lapsed_s=state.tuning.lapsed_pass_s)
    address = client_address(request.scope, state.settings.trusted_proxies)
    return json_answer(quote_body(*await state.checkout.quote(customers, body, address=address)))


async def prices(request: Request) -> Answer:
    """Fees and taxes are added to the tickets' prices, except for a tax that is `included`. `all_in` has what one
    ticket costs with everything in it, for each price in `each`; `together_minor`, what one order of all `line`s
    (price x quantity) costs. Of another price type than the usual one a price is asked for as `each_of_type=5000:child`
    and answered in `all_in_by_type`, and a line is `5000x2:child`.
    """
    query = request.query(PricesQuery)
    event: EventRules = await request.state.prices.rules(request.path["event_id"])
    together = [_tickets_at(one, event.types) for one in query.line or ()]
    found = PricesAnswer(
        **event.rules.model_dump(),
        all_in={minor: event.all_in(TicketsAt(minor)) for minor in query.each or ()},
        together_minor=event.all_in(*together) if together else None,
    )
    for each in query.each_of_type or ():
        at = _tickets_at(each, event.types)
        found.all_in_by_type.setdefault(each.partition(":")[2], {})[at.price_minor] = event.all_in(at)
    kept = (b"cache-control", b"public, max-age=%d" % PRICES_MAX_AGE_S)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, kept)))


def _tickets_at(text: str, types: TypeNames) -> TicketsAt:
    """The tickets that a query names. Raises `InvalidRequest` for a price type that the event has not."""
    at, _, type_id = text.partition(":")
    minor, _, quantity = at.partition("x")
    if type_id and not types.has(type_id):
        raise InvalidRequest(f"There is no price type {type_id}. See GET /events/{{event_id}}.")
    return TicketsAt(int(minor), int(quantity or 1), types.stored(type_id))


def providers(request: Request) -> Answer:
    found = ProvidersAnswer(providers=offered_providers(request.state))
    return Answer(200, found.model_dump_json().encode(), (JSON, (b"cache-control", b"public, max-age=60")))


def offered_providers(state: State) -> list[ProviderAnswer]:
    return [ProviderAnswer(name=one.name, methods=sorted(one.methods)) for one in state.providers.values()]


async def list_orders(request: Request) -> Answer:
    """Orders of the caller's passes or user, and those that the browser's order cookies open. With an order's own token
    it is that order alone.
    """
    state, query = request.state, request.query(PageQuery)
    opened = state.authenticator.order_of_token(request)
    if opened is not None:
        references = [opened] if query.page == 1 else []
    else:
        by_cookie = state.authenticator.orders_in_cookies(request)
        try:
            customers = await state.authenticator.customers(request)
        except (NoCredential, BadCredential):
            if not by_cookie:
                raise
            customers = []
        references = await state.store.references_of(customers, by_cookie, page=query.page, page_size=query.page_size)
    found = await state.store.read_all(references)
    orders = [order_view(found[reference]) for reference in references if reference in found]
    return compressed(request.fields, json_answer({"page": query.page, "page_size": query.page_size, "orders": orders}))


async def cancel(request: Request) -> Answer:
    """Answers 202 while the provider still has to confirm it."""
    state: State = request.state
    order = await read_own_order(request)
    await request_cancel(state.store, order)
    await state.worker.settle(order.reference)
    latest = await state.store.require(order.reference)
    return json_answer(order_view(latest), status=202 if latest.status == "pending" else 200)


async def extend(request: Request) -> Answer:
    state: State = request.state
    order = await read_own_order(request)
    await extend_payment(state.store, state.inventory, order)
    return await _changed(state, order.reference)


async def change_email(request: Request) -> Answer:
    """Mail goes to the new address from then on, and of a sold order the confirmation goes there at once. Possible
    three times, not for an order that has ended. Limits per customer go on counting the address that ordered.
    """
    state: State = request.state
    body = await request.json(EmailChange)
    order = await read_own_order(request)
    check_address(state.mail, body.email, body.check_spelling)
    await change_address(state.store, order, body.email, sends_mail=state.mail.is_sent)
    return await _changed(state, order.reference)


async def rename(request: Request) -> Answer:
    """Of the tickets in `names`, by their `ticket_id`; or, where the event asks for one name an order, of the order by
    `name`. Possible until the event's `names_until`, for a limited number of names an order, never of a void ticket.
    """
    state: State = request.state
    body = await request.json(NamesChange)
    refuse_card_numbers(body)
    order = await read_own_order(request)
    await change_names(state.store, order, await read_show(state.store.db, order.event_id), body)
    return await _changed(state, order.reference)


async def _changed(state: State, reference: str) -> Answer:
    latest = await state.store.require(reference)
    await state.frames.publish(latest)
    return json_answer(order_view(latest))


async def pay(request: Request) -> Answer:
    """Charges once more what a provider has declined."""
    state: State = request.state
    body, checked = await request.json(NewPayment), idempotency_key(request.header(b"idempotency-key"))
    order = await read_own_order(request)
    is_new = await retry_payment(
        state.store, order, body, key=checked, providers=state.providers, capture=state.settings.captures_at_once
    )
    if is_new:
        in_background = await state.prices.in_background(order.event_id, order.holder)
        await state.worker.settle(order.reference, in_background=in_background)
    return await accepted(state, order.reference, replayed=not is_new)


async def receive_webhook(request: Request) -> Answer:
    """A payment provider's webhook, of which every purchase brings one or more; answered as soon as it is stored."""
    state: State = request.state
    provider = state.providers.get(request.path["provider"])
    if provider is None:
        raise UnknownProvider
    await state.webhook_inbox.receive(provider, Headers(scope=request.scope), await request.body())
    return STORED


REQUIRED_KEY = {
    "name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255},
}  # fmt: skip
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "schema": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Idempotency-Key"},
}  # fmt: skip
ORDER = "/orders/{reference}"
_route = partial(FastRoute, tag="orders", patterns={"event_id": EVENT_ID_PATTERN, "reference": REFERENCE_PATTERN})
FAST_ROUTES = [
    _route(
        "POST", "/orders", create_order, summary="Create an order; it is charged in the background",
        parameters=[REQUIRED_KEY], body=NewOrder,
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
    ),
    _route(
        "GET", ORDER, read_order, summary="Get an order",
        answers={200: ("The current order", OrderView)},
        refusals={
            401: "No credential, or an invalid one",
            404: "There is no order with this reference, or it is not yours",
        },
    ),
    _route(
        "POST", "/orders/quote", quote, summary="Quote the price of a reservation", body=QuoteRequest,
        description=getdoc(quote),
        answers={200: ("The price", QuoteAnswer)},
        refusals={404: "There is no such reservation, or it is not yours"},
    ),
    _route(
        "GET", "/orders/events/{event_id}/prices", prices, summary="Get the fees and taxes of an event",
        description=getdoc(prices), query=PricesQuery, answers={200: ("Fees and taxes", PricesAnswer)},
    ),
    _route(
        "GET", "/payments/providers", providers, summary="List payment providers and methods",
        answers={200: ("The providers", ProvidersAnswer)},
    ),
    _route(
        "GET", "/orders", list_orders, summary="List my orders, newest first", description=getdoc(list_orders),
        query=PageQuery, answers={200: ("The orders", OrdersPage)},
    ),
    _route(
        "POST", f"{ORDER}/cancel", cancel, summary="Cancel an order before payment",
        description=getdoc(cancel),
        answers={200: ("The order", OrderView)},
    ),
    _route(
        "POST", f"{ORDER}/extend", extend, summary="Get more time to pay, once",
        answers={200: ("The order with its new end", OrderView)},
    ),
    _route(
        "POST", f"{ORDER}/email", change_email, summary="Correct the e-mail address of an order",
        description=getdoc(change_email), body=EmailChange, answers={200: ("The order", OrderView)},
    ),
    _route(
        "POST", f"{ORDER}/names", rename, summary="Change the names on tickets", description=getdoc(rename),
        body=NamesChange, answers={200: ("The order", OrderView)},
        refusals={
            404: "There is no such order or ticket, or it is not yours",
            409: "It is too late, the names were changed too often, or the event asks for no names",
        },
    ),
    _route(
        "POST", f"{ORDER}/payments", pay, summary="Retry a declined payment", body=NewPayment,
        parameters=[IDEMPOTENCY_KEY], answers={202: ("Accepted", OrderAccepted)},
    ),
    FastRoute(
        "POST", "/webhooks/{provider}", receive_webhook, tag="webhooks",
        summary="Receive a payment provider's webhook", parameters=[path_parameter("provider", "^[a-z]{1,32}$")],
        answers={200: ("Stored", WebhookStored)},
        refusals={
            401: "Not signed by the provider, or its signature is too old",
            404: "There is no payment provider with this name",
        },
    ),
]  # fmt: skip
