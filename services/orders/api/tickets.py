"""The doors to an order's paper: its tickets, their codes, a receipt; and the key that the link in a mail carries."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request, Response

from services.orders.api.orders import keeps_order
from services.orders.api.read_order import owned
from services.orders.order.next_step import Order
from services.orders.problems import NoReceipt, NoTickets, UnknownOrder, UnknownTicket
from services.orders.state import State, state_of
from services.orders.tickets import pdf
from services.orders.tickets import show as tickets_show
from services.orders.tickets.pdf import Receipt, TicketPage, name_of
from services.orders.tickets.tickets import Ticket, TicketSigner, svg, tickets_of
from shared.runtime.clock import from_datetime, rfc3339
from shared.security.order_tokens import sign_order_token
from shared.web.api_document import file_of
from shared.web.fields import ReferencePath
from shared.web.problems import NoCredential, TooManyRequests

Paper = TypeVar("Paper", Sequence[TicketPage], Receipt)
PDF = {**file_of("application/pdf"), 304: {"description": "You have it already"}}
router = APIRouter(tags=["tickets"])
TicketIdPath = Annotated[str, Path(pattern="^[A-Z0-9]{12}$")]
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@router.get("/orders/{reference}/tickets", summary="List the tickets of an order with their codes")
async def list_tickets(reference: ReferencePath, request: Request, response: Response) -> dict[str, Any]:
    """Empty until the order is confirmed. Where codes move, `window_s` says how often to ask again."""
    state = state_of(request)
    order = await owned(state, request, reference)
    show = await tickets_show.read(state.book.db, order.event_id)
    codes = TicketSigner(state.settings)
    response.headers["cache-control"] = "no-store"
    return {
        "reference": reference,
        "event": {"event_id": show.event_id, "name": show.name, "venue": show.venue, "when": show.when},
        "window_s": codes.window_s,
        "tickets": [
            {
                "ticket_id": one.ticket_id,
                "section_id": one.section_id,
                "seat_id": one.seat_id,
                "place": show.place(one.section_id, one.seat_id),
                "status": "valid" if one.is_valid else "void",
                "void_at": rfc3339(from_datetime(one.void_at)) if one.void_at else None,
                "code": codes.code(order, one) if one.is_valid else None,
            }
            for one in await tickets_of(state.book.db, reference)
        ],
    }


@router.get(
    "/orders/{reference}/tickets/{ticket_id}.svg",
    summary="Get a ticket's code as SVG",
    responses=file_of("image/svg+xml"),
    response_class=Response,
)
async def code(reference: ReferencePath, ticket_id: TicketIdPath, request: Request) -> Response:
    state = state_of(request)
    order, tickets = await _tickets(state, request, reference)
    one = next((one for one in tickets if one.ticket_id == ticket_id and one.is_valid), None)
    if one is None:
        raise UnknownTicket
    return Response(svg(TicketSigner(state.settings).code(order, one)), media_type="image/svg+xml", headers=PRIVATE)


@router.get(
    "/orders/{reference}/tickets.pdf",
    summary="Get the tickets of an order as PDF",
    responses=PDF,
    response_class=Response,
)
async def tickets_pdf(reference: ReferencePath, request: Request) -> Response:
    state = state_of(request)
    order, tickets = await _tickets(state, request, reference)
    show = await tickets_show.read(state.book.db, order.event_id)
    pages = pdf.pages(order, show, tickets, TicketSigner(state.settings))
    if not pages:
        raise NoTickets
    return await _pdf(state, request, reference, pages, state.printer.tickets, name="tickets")


@router.get(
    "/orders/{reference}/receipt.pdf",
    summary="Show an order for support",
    responses=PDF,
    response_class=Response,
)
async def receipt_pdf(reference: ReferencePath, request: Request) -> Response:
    state = state_of(request)
    order = await owned(state, request, reference)
    if not (order.charges or order.confirmed_at_ms):
        raise NoReceipt
    show = await tickets_show.read(state.book.db, order.event_id)
    paper = pdf.receipt(order, show, seller=state.settings.seller)
    return await _pdf(state, request, reference, paper, state.printer.receipt, name="receipt")


@router.post("/orders/{reference}/key", status_code=204, summary="Create a browser session for an order")
async def open_here(reference: ReferencePath, request: Request) -> Response:
    """With the order's own token as Bearer, as a mail's link has it in its fragment: a cookie from now on."""
    state = state_of(request)
    opened = state.callers.opened_by_token(request)
    if opened is None:
        raise NoCredential
    if opened != reference or await state.book.read(reference) is None:
        raise UnknownOrder
    token = sign_order_token(state.settings.order_token_keys, reference)
    return Response(status_code=204, headers={**PRIVATE, "set-cookie": keeps_order(state, reference, token)})


async def _tickets(state: State, request: Request, reference: str) -> tuple[Order, list[Ticket]]:
    order = await owned(state, request, reference)
    return order, await tickets_of(state.book.db, reference)


async def _pdf(
    state: State,
    request: Request,
    reference: str,
    paper: Paper,
    draw: Callable[[Paper], Awaitable[bytes]],
    *,
    name: str,
) -> Response:
    """The paper, unless the caller has it already. Raises `TooManyRequests`, `Overloaded`."""
    headers = {**PRIVATE, "cache-control": "private, no-cache", "etag": f'"{name_of(paper)}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    wait_s = state.prints.take(reference, now_s=time.monotonic())
    if wait_s > 0:
        raise TooManyRequests("This order's papers were asked for very often.", retry_after_s=math.ceil(wait_s))
    headers["content-disposition"] = f'attachment; filename="{name}-{reference}.pdf"'
    return Response(await draw(paper), media_type="application/pdf", headers=headers)
