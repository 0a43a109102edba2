"""The fans' API of orders: quote, list, cancel, and pay again. `create_order` and `read_order` are the fast routes."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from services.orders.api.read_order import order_cookie_header, read_own_order
from services.orders.api.schemas import (
    EmailChange,
    OrderAccepted,
    OrdersPage,
    ProvidersAnswer,
)
from services.orders.checkout.requests import NewPayment, QuoteRequest
from services.orders.mail.addresses import change_address, check_address
from services.orders.model.order import Order
from services.orders.model.view import order_view
from services.orders.pricing.calculator import all_in
from services.orders.pricing.quote import quote_body
from services.orders.problems import UnknownOrder
from services.orders.requests.payment import extend_payment, request_cancel, retry_payment
from services.orders.state import State, state_of
from services.orders.store.search import references_of
from services.orders.store.store import read_many
from shared.contracts.event_file import PRICE_MINOR_MAX
from shared.contracts.orders import OrderView, ProviderAnswer, QuoteAnswer
from shared.contracts.prices import PRICES_MAX, PricesAnswer
from shared.errors.problems import BadCredential, NoCredential
from shared.runtime.clock import rfc3339
from shared.security.client_address import client_address
from shared.security.tokens import sign_order_token
from shared.web.parameters import EventIdPath, ReferencePath, idempotency_key

router = APIRouter(tags=["orders"])
PRICES_MAX_AGE_S = 10
PAGE_SIZE_MAX = 100
PAGE_MAX = 1000

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]
Page = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Each = Annotated[list[Annotated[int, Query(ge=0, le=PRICE_MINOR_MAX)]] | None, Query(max_length=PRICES_MAX)]
Lines = Annotated[list[Annotated[str, Query(pattern=r"^[0-9]{1,9}x[1-9][0-9]{0,2}$")]] | None, Query(max_length=100)]
PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)]


async def accepted_response(
    state: State, reference: str, *, replayed: bool, order: Order | None = None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Header fields and the body, an `OrderAccepted`: the order's address, and the token that opens it for good.
    `order` is an order that this request created, as it was written; any other is read. Raises `UnknownOrder`.
    """
    order = order or await state.store.read(reference)
    if order is None:
        raise UnknownOrder
    view, until_ms = order_view(order), order.expires_at_ms
    status, expires_in_s = order.status, view["expires_in_seconds"]
    checkout_url = (view["attempt"] or {}).get("checkout_url")
    token = sign_order_token(state.settings.order_token_keys, reference)
    cookie = order_cookie_header(state, reference, token)
    headers = {"location": f"/orders/{reference}", "cache-control": "no-store", "set-cookie": cookie}
    if replayed:
        headers["idempotency-replayed"] = "true"
    return headers, {
        "reference": reference, "status": status, "order_token": token, "checkout_url": checkout_url,
        "expires_at": rfc3339(until_ms), "expires_in_seconds": expires_in_s, "poll_url": f"/orders/{reference}",
        "updates_url": f"/orders/{reference}/updates",
    }  # fmt: skip


@router.post(
    "/orders/quote", summary="Quote the price of a reservation",
    responses={404: {"description": "There is no such reservation, or it is not yours"}},
)  # fmt: skip
async def quote(body: QuoteRequest, request: Request, response: Response) -> QuoteAnswer:
    """Changes nothing. The problem `promo-code-not-valid` says why in `reason`."""
    state = state_of(request)
    response.headers["cache-control"] = "no-store"
    customers = await state.authenticator.customers(request, lapsed_s=state.tuning.lapsed_pass_s)
    address = client_address(request.scope, state.settings.trusted_proxies)
    return QuoteAnswer.model_validate(quote_body(*await state.checkout.quote(customers, body, address=address)))


@router.get("/orders/events/{event_id}/prices", summary="Get the fees and taxes of an event")
async def prices(
    event_id: EventIdPath, request: Request, response: Response, each: Each = None, line: Lines = None
) -> PricesAnswer:
    """Fees and taxes are added to the tickets' prices, except for a tax that is `included`. `all_in` has what one
    ticket costs with everything in it, for each price in `each`; `together_minor`, what one order of all `line`s
    (price x quantity) costs.
    """
    response.headers["cache-control"] = f"public, max-age={PRICES_MAX_AGE_S}"
    rules, currency = await state_of(request).price_rules.rules(event_id)
    lines = [(int(minor), int(quantity)) for minor, quantity in (one.split("x") for one in line or ())]
    return PricesAnswer(
        **rules.model_dump(),
        all_in={minor: all_in(rules, [(minor, 1)], currency) for minor in each or ()},
        together_minor=all_in(rules, lines, currency) if lines else None,
    )


@router.get("/payments/providers", summary="List payment providers and methods")
async def providers(request: Request, response: Response) -> ProvidersAnswer:
    response.headers["cache-control"] = "public, max-age=60"
    return ProvidersAnswer(providers=offered_providers(state_of(request)))


def offered_providers(state: State) -> list[ProviderAnswer]:
    return [ProviderAnswer(name=one.name, methods=sorted(one.methods)) for one in state.providers.values()]


@router.get("/orders", summary="List my orders, newest first")
async def list_orders(request: Request, response: Response, page: Page = 1, page_size: PageSize = 20) -> OrdersPage:
    """Orders of the caller's passes or user, and those that the browser's order cookies open. With an order's own token
    it is that order alone.
    """
    state = state_of(request)
    response.headers["cache-control"] = "no-store"
    opened = state.authenticator.order_of_token(request)
    if opened is not None:
        references = [opened] if page == 1 else []
    else:
        by_cookie = state.authenticator.orders_in_cookies(request)
        try:
            customers = await state.authenticator.customers(request)
        except (NoCredential, BadCredential):
            if not by_cookie:
                raise
            customers = []
        references = await references_of(state.store.db, customers, by_cookie, page=page, page_size=page_size)
    found = await read_many(state.store.db, references)
    orders = [OrderView.model_validate(order_view(found[r])) for r in references if r in found]
    return OrdersPage(page=page, page_size=page_size, orders=orders)


@router.post("/orders/{reference}/cancel", summary="Cancel an order before payment")
async def cancel(reference: ReferencePath, request: Request, response: Response) -> OrderView:
    """Answers 202 while the provider still has to confirm it."""
    state = state_of(request)
    order = await read_own_order(state, request, reference)
    await request_cancel(state.store, order)
    await state.worker.settle(reference)
    latest = await state.store.read(reference)
    assert latest is not None
    response.status_code = 202 if latest.status == "pending" else 200
    response.headers["cache-control"] = "no-store"
    return OrderView.model_validate(order_view(latest))


@router.post("/orders/{reference}/extend", summary="Get more time to pay, once")
async def extend(reference: ReferencePath, request: Request, response: Response) -> OrderView:
    state = state_of(request)
    await extend_payment(state.store, state.inventory, await read_own_order(state, request, reference))
    latest = await state.store.read(reference)
    assert latest is not None
    await state.frames.publish(latest)
    response.headers["cache-control"] = "no-store"
    return OrderView.model_validate(order_view(latest))


@router.post("/orders/{reference}/email", summary="Correct the e-mail address of an order")
async def change_email(reference: ReferencePath, body: EmailChange, request: Request, response: Response) -> OrderView:
    """Mail goes to the new address from then on, and of a sold order the confirmation goes there at once. Possible
    three times, not for an order that has ended. Limits per customer go on counting the address that ordered.
    """
    state = state_of(request)
    order = await read_own_order(state, request, reference)
    check_address(state.mail_server, body.email, body.check_spelling)
    await change_address(state.store, order, body.email, sends_mail=state.mail_server is not None)
    latest = await state.store.read(reference)
    assert latest is not None
    await state.frames.publish(latest)
    response.headers["cache-control"] = "no-store"
    return OrderView.model_validate(order_view(latest))


@router.post("/orders/{reference}/payments", status_code=202, summary="Retry a declined payment")
async def pay(
    reference: ReferencePath, body: NewPayment, request: Request, response: Response, key: IdempotencyKey = None
) -> OrderAccepted:
    state = state_of(request)
    checked = idempotency_key(key)
    order = await read_own_order(state, request, reference)
    is_new = await retry_payment(
        state.store, order, body, key=checked, providers=state.providers, capture=state.settings.captures_at_once
    )
    if is_new:
        in_background = state.background_share.in_background(order.event_id, order.holder)
        await state.worker.settle_or_leave(reference, in_background=in_background)
    headers, answered = await accepted_response(state, reference, replayed=not is_new)
    response.headers.update(headers)
    return OrderAccepted.model_validate(answered)
