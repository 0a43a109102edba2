"""The fans' API of an order's documents: its tickets and their codes, its receipt, and the session of a mail's link."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Request, Response

from services.orders.api.read_order import order_cookie_header, read_own_order
from services.orders.api.schemas import ShowAnswer, TicketAnswer, TicketsAnswer
from services.orders.model.order import Order
from services.orders.problems import NoReceipt, NoTickets, UnknownOrder, UnknownTicket
from services.orders.state import State, state_of
from services.orders.tickets.pdf import Receipt, TicketPage, content_hash, receipt_content, ticket_pages
from services.orders.tickets.show import ShowInfo, read_show
from services.orders.tickets.tickets import Ticket, TicketSigner, qr_svg, tickets_of
from shared.errors.problems import NoCredential, NotFound, TooManyRequests
from shared.runtime.clock import now_ms, rfc3339, to_datetime
from shared.security.tokens import sign_order_token
from shared.web.api_document import file_of
from shared.web.pages.calendar_file import CalendarEntry, calendar_file
from shared.web.parameters import ReferencePath
from shared.words.words import words

Document = TypeVar("Document", Sequence[TicketPage], Receipt)
PDF = {**file_of("application/pdf"), 304: {"description": "Not modified since the ETag in If-None-Match"}}
router = APIRouter(tags=["tickets"])
TicketIdPath = Annotated[str, Path(pattern="^[A-Z0-9]{12}$")]
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@router.get("/orders/{reference}/tickets", summary="List the tickets of an order with their codes")
async def list_tickets(reference: ReferencePath, request: Request, response: Response) -> TicketsAnswer:
    """Empty until the order is confirmed. Where codes rotate, `window_s` says how often to fetch them again."""
    state = state_of(request)
    order, tickets = await _own_tickets(state, request, reference)
    show, text = await read_show(state.store.db, order.event_id), words(order.language)
    signer = TicketSigner(state.settings)
    response.headers["cache-control"] = "no-store"
    return TicketsAnswer(
        reference=reference,
        event=ShowAnswer(event_id=show.event_id, name=show.name, venue=show.venue, when=show.when(text)),
        window_s=signer.window_s,
        tickets=[
            TicketAnswer(
                ticket_id=one.ticket_id,
                section_id=one.section_id,
                seat_id=one.seat_id,
                place=show.place(one.section_id, one.seat_id, text),
                status="valid" if one.is_valid else "void",
                void_at=rfc3339(one.void_at_ms) if one.void_at_ms else None,
                code=signer.code(order, one) if one.is_valid else None,
            )
            for one in tickets
        ],
    )


@router.get(
    "/orders/{reference}/tickets/{ticket_id}.svg",
    summary="Get a ticket's code as SVG",
    responses=file_of("image/svg+xml"),
    response_class=Response,
)
async def ticket_code(reference: ReferencePath, ticket_id: TicketIdPath, request: Request) -> Response:
    state = state_of(request)
    order, tickets = await _own_tickets(state, request, reference)
    one = next((one for one in tickets if one.ticket_id == ticket_id and one.is_valid), None)
    if one is None:
        raise UnknownTicket
    code = TicketSigner(state.settings).code(order, one)
    return Response(qr_svg(code), media_type="image/svg+xml", headers=PRIVATE)


@router.get(
    "/orders/{reference}/tickets.pdf",
    summary="Get the tickets of an order as PDF",
    responses=PDF,
    response_class=Response,
)
async def tickets_pdf(reference: ReferencePath, request: Request) -> Response:
    state = state_of(request)
    order, tickets = await _own_tickets(state, request, reference)
    show = await read_show(state.store.db, order.event_id)
    pages = ticket_pages(order, show, tickets, TicketSigner(state.settings))
    if not pages:
        raise NoTickets
    return await _pdf(state, request, reference, pages, draw=state.pdf_renderer.tickets, name="tickets")


@router.get(
    "/orders/{reference}/receipt.pdf",
    summary="Get the receipt of an order as PDF",
    responses=PDF,
    response_class=Response,
)
async def receipt_pdf(reference: ReferencePath, request: Request) -> Response:
    state = state_of(request)
    order = await read_own_order(state, request, reference)
    if not (order.charges or order.confirmed_at_ms):
        raise NoReceipt
    show = await read_show(state.store.db, order.event_id)
    receipt = receipt_content(order, show, seller=state.settings.seller)
    return await _pdf(state, request, reference, receipt, draw=state.pdf_renderer.receipt, name="receipt")


@router.get(
    "/orders/{reference}/event.ics",
    summary="Get the show of an order as a calendar file",
    responses=file_of("text/calendar"),
    response_class=Response,
)
async def calendar(reference: ReferencePath, request: Request) -> Response:
    state = state_of(request)
    order = await read_own_order(state, request, reference)
    show = await read_show(state.store.db, order.event_id)
    if show.starts_at is None:
        raise NotFound("The time of this event is not known.")
    entry = CalendarEntry(
        uid=f"{reference}@onsale", made_at=to_datetime(now_ms()), starts_at=show.starts_at, ends_at=show.ends_at,
        zone=show.zone, name=show.name, venue=show.venue, url=f"{state.settings.public_url}/o/{reference}",
        description=_places(order, show), language=order.language,
    )  # fmt: skip
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{reference}.ics"'}
    return Response(calendar_file(entry), media_type="text/calendar", headers=headers)


def _places(order: Order, show: ShowInfo) -> str:
    """The order and its tickets that are still good, a line each."""
    text = words(order.language)
    kept = [line for line in order.lines if line.remaining]
    places = (
        show.place(line.section_id, line.seat_id, text)
        if line.seat_id
        else text("several", n=line.remaining, name=show.place(line.section_id, None, text))
        for line in kept
    )
    return "\n".join((text("mail_order", reference=order.reference), *places))


@router.post("/orders/{reference}/key", status_code=204, summary="Create a browser session for an order")
async def create_session(reference: ReferencePath, request: Request) -> Response:
    """Sets the order's cookie for a request with the order's own token as bearer token, which the link in a mail has in
    its fragment.
    """
    state = state_of(request)
    opened = state.authenticator.order_of_token(request)
    if opened is None:
        raise NoCredential
    if opened != reference or await state.store.read(reference) is None:
        raise UnknownOrder
    token = sign_order_token(state.settings.order_token_keys, reference)
    return Response(status_code=204, headers={**PRIVATE, "set-cookie": order_cookie_header(state, reference, token)})


async def _own_tickets(state: State, request: Request, reference: str) -> tuple[Order, list[Ticket]]:
    order = await read_own_order(state, request, reference)
    return order, tickets_of(order)


async def _pdf(
    state: State, request: Request, reference: str, content: Document, *,
    draw: Callable[[Document], Awaitable[bytes]], name: str,
) -> Response:  # fmt: skip
    """The document, or 304 if the caller has it. Raises `TooManyRequests`, `Overloaded`."""
    headers = {**PRIVATE, "cache-control": "private, no-cache", "etag": f'"{content_hash(content)}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    wait_s = state.pdf_limiter.take(reference, now_s=time.monotonic())
    if wait_s > 0:
        raise TooManyRequests(
            "Too many PDFs of this order were requested. Try again after Retry-After.", retry_after_s=math.ceil(wait_s)
        )
    headers["content-disposition"] = f'attachment; filename="{name}-{reference}.pdf"'
    return Response(await draw(content), media_type="application/pdf", headers=headers)
