"""The public doors: buy, look, cancel, try to pay again."""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from sqlalchemy import ColumnElement, and_, literal_column, or_, select

from services.orders.api.auth import Customer, owner_id
from services.orders.api.read_order import owned
from services.orders.api.schemas import NewPayment, PricesAnswer, QuoteAsked
from services.orders.checkout.create_order import OrderDraft
from services.orders.order import leases
from services.orders.order.references import idempotency_key
from services.orders.order.view import order_view
from services.orders.payments.retry_payment import request_cancel, retry_payment
from services.orders.pricing.calculator import all_in
from services.orders.pricing.quote import quote_body
from services.orders.problems import UnknownOrder
from services.orders.state import State, state_of
from services.orders.tables import HOLDER, OF_USERS
from services.orders.tables import order as order_table
from shared.contracts.event_file import PRICE_MINOR_MAX
from shared.runtime.clock import now_ms, rfc3339
from shared.security.auth import order_cookie, set_cookie
from shared.security.order_tokens import sign_order_token
from shared.web.client_address import client_address
from shared.web.fields import EventIdPath, ReferencePath

router = APIRouter(tags=["orders"])
COOKIE_MAX_AGE_S = 400 * 86_400  # as long as browsers keep any
PRICES_MAX_AGE_S = 10
PAGE_SIZE_MAX = 100
PAGE_MAX = 1000

Key = Annotated[str | None, Header(alias="Idempotency-Key")]
Page = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Each = Annotated[list[Annotated[int, Query(ge=0, le=PRICE_MINOR_MAX)]] | None, Query(max_length=100)]
Lines = Annotated[list[Annotated[str, Query(pattern=r"^[0-9]{1,9}x[1-9][0-9]{0,2}$")]] | None, Query(max_length=100)]
PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)]


class Accepted(NamedTuple):
    """What is told of an order that was asked for."""

    reference: str
    status: str
    checkout_url: str | None
    expires_at_ms: int
    expires_in_s: int


def as_placed(new: OrderDraft) -> Accepted:
    """An order that this request made, and that nothing is known to have happened to since."""
    until_ms = new.reservation.reserved_until_ms
    return Accepted(new.reference, "pending", None, until_ms, max(0, (until_ms - now_ms()) // 1000))


async def as_it_is(state: State, reference: str) -> Accepted:
    order = await state.book.read(reference)
    if order is None:
        raise UnknownOrder
    seen = order_view(order)
    checkout_url = (seen["attempt"] or {}).get("checkout_url")
    return Accepted(reference, order.status, checkout_url, order.expires_at_ms, seen["expires_in_seconds"])


def accepted(state: State, seen: Accepted, *, replayed: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """Header fields and body: the order's address, and the token that opens it for good."""
    token = sign_order_token(state.settings.order_token_keys, seen.reference)
    cookie = keeps_order(state, seen.reference, token)
    headers = {"location": f"/orders/{seen.reference}", "cache-control": "no-store", "set-cookie": cookie}
    if replayed:
        headers["idempotency-replayed"] = "true"
    return headers, {
        "reference": seen.reference,
        "status": seen.status,
        "order_token": token,
        "checkout_url": seen.checkout_url,
        "expires_at": rfc3339(seen.expires_at_ms),
        "expires_in_seconds": seen.expires_in_s,
        "poll_url": f"/orders/{seen.reference}",
        "updates_url": f"/orders/{seen.reference}/updates",
    }


def keeps_order(state: State, reference: str, token: str) -> str:
    """The cookie by which a browser opens this order."""
    secure = state.settings.secure_cookies
    return set_cookie(order_cookie(reference, secure=secure), token, max_age_s=COOKIE_MAX_AGE_S, secure=secure)


@router.post("/orders/quote", summary="Quote the price of a reservation")
async def quote(asked: QuoteAsked, request: Request, response: Response) -> dict[str, Any]:
    """Changes nothing. `promo-code-not-valid` says why in `reason`."""
    state = state_of(request)
    response.headers["cache-control"] = "no-store"
    buyers = await state.callers.customers(request, lapsed_s=state.settings.lapsed_pass_s)
    address = client_address(request.scope, state.settings.trusted_proxies)
    return quote_body(*await state.checkout.quote(buyers, asked, address=address))


@router.get("/orders/events/{event_id}/prices", summary="Get the fees and taxes of an event")
async def prices(
    event_id: EventIdPath, request: Request, response: Response, each: Each = None, line: Lines = None
) -> PricesAnswer:
    """They come on top of the tickets' prices, unless a tax is `included`. Of prices named by `each` it says what one
    ticket costs with everything in it, of all `line`s together (price x quantity) what one order of them does.
    """
    response.headers["cache-control"] = f"public, max-age={PRICES_MAX_AGE_S}"
    rules = await state_of(request).prices.rules(event_id)
    basket = [(int(minor), int(quantity)) for minor, quantity in (one.split("x") for one in line or ())]
    return PricesAnswer(
        **rules.model_dump(),
        all_in={minor: all_in(rules, [(minor, 1)]) for minor in each or ()},
        together_minor=all_in(rules, basket) if basket else None,
    )


@router.get("/payments/providers", summary="List payment providers and methods")
async def providers(request: Request, response: Response) -> dict[str, Any]:
    offered = state_of(request).providers.values()
    response.headers["cache-control"] = "public, max-age=60"
    return {"providers": [{"name": each.name, "methods": sorted(each.methods)} for each in offered]}


@router.get("/orders", summary="List my orders, newest first")
async def list_orders(request: Request, response: Response, page: Page = 1, page_size: PageSize = 20) -> dict[str, Any]:
    state = state_of(request)
    response.headers["cache-control"] = "no-store"
    opened = state.callers.opened_by_token(request)
    if opened is not None:
        references = [opened] if page == 1 else []
    else:
        newest = select(order_table.c.reference).where(or_(*map(_made_by, await state.callers.customers(request))))
        newest = newest.order_by(order_table.c.created_at.desc(), order_table.c.reference)
        async with state.book.db.connect() as connection:
            references = list(await connection.scalars(newest.limit(page_size).offset((page - 1) * page_size)))
    found = await leases.read_many(state.book.db, references)
    return {"page": page, "page_size": page_size, "orders": [order_view(found[r]) for r in references if r in found]}


def _made_by(buyer: Customer) -> ColumnElement[bool]:
    if buyer.event_id is not None:
        return order_table.c.principal == owner_id(buyer.event_id, buyer.holder)
    return and_(literal_column(OF_USERS), literal_column(HOLDER) == buyer.holder)


@router.post("/orders/{reference}/cancel", summary="Cancel an order before payment")
async def cancel(reference: ReferencePath, request: Request, response: Response) -> dict[str, Any]:
    """202 while the provider still has to agree."""
    state = state_of(request)
    order = await owned(state, request, reference)
    await request_cancel(state.db, state.jobs, order)
    await state.inline.process_now(reference)
    latest = await state.book.read(reference)
    assert latest is not None
    response.status_code = 202 if latest.status == "pending" else 200
    response.headers["cache-control"] = "no-store"
    return order_view(latest)


@router.post("/orders/{reference}/payments", status_code=202, summary="Retry a declined payment")
async def pay(
    reference: ReferencePath, asked: NewPayment, request: Request, response: Response, key: Key = None
) -> dict[str, Any]:
    state = state_of(request)
    checked = idempotency_key(key)
    order = await owned(state, request, reference)
    in_background = state.shares.in_background(order.event_id, order.principal.partition(":")[2])
    jobs = state.jobs if in_background else None
    capture = state.settings.captures_at_once
    paid = await retry_payment(state.db, jobs, state.providers, order, checked, asked, capture=capture)
    if not paid.heard:
        await state.inline.process_now(reference)
    headers, told = accepted(state, await as_it_is(state, reference), replayed=paid.replayed)
    response.headers.update(headers)
    return told
