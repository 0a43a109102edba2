"""The fans' API of an order's documents: its tickets and their codes, its receipt, and the session of a mail's link."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import getdoc
from typing import TypeVar

from services.orders.api.orders import order_key, read_own_order
from services.orders.api.schemas import ShowAnswer, TicketAnswer, TicketsAnswer
from services.orders.model.order import Order
from services.orders.problems import NoReceipt, NoTickets, UnknownOrder, UnknownTicket
from services.orders.state import State
from services.orders.tickets.pdf import Receipt, TicketPage, content_hash, receipt_content, ticket_pages
from services.orders.tickets.show import ShowInfo, read_show
from services.orders.tickets.tickets import qr_svg, ticket_code, tickets_of
from shared.errors.problems import NoCredential, NotFound
from shared.runtime.clock import now_ms, rfc3339, to_datetime
from shared.web.answers import JSON, NO_STORE, Answer, compressed, fields_of
from shared.web.fast_routes import FastRoute
from shared.web.pages.calendar_file import CalendarEntry, calendar_file
from shared.web.request import REFERENCE_PATTERN, Request
from shared.words.words import words

Document = TypeVar("Document", Sequence[TicketPage], Receipt)
PDF, SVG, CALENDAR = "application/pdf", "image/svg+xml", "text/calendar"
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


async def list_tickets(request: Request) -> Answer:
    """Empty until the order is confirmed. Where codes rotate, `window_s` says how often to fetch them again."""
    state: State = request.state
    order = await read_own_order(request)
    show, text = await read_show(state.store.db, order.event_id), words(order.language)
    found = TicketsAnswer(
        reference=order.reference,
        event=ShowAnswer(event_id=show.event_id, name=show.name, venue=show.venue, when=show.when(text)),
        window_s=state.settings.ticket_window_s,
        tickets=[
            TicketAnswer(
                ticket_id=one.ticket_id,
                section_id=one.section_id,
                seat_id=one.seat_id,
                place=show.place(one.section_id, one.seat_id, text),
                status="valid" if one.is_valid else "void",
                void_at=rfc3339(one.void_at_ms) if one.void_at_ms else None,
                code=ticket_code(state.settings, order, one) if one.is_valid else None,
            )
            for one in tickets_of(order)
        ],
    )
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, NO_STORE)))


async def ticket_picture(request: Request) -> Answer:
    order = await read_own_order(request)
    one = next((one for one in tickets_of(order) if one.ticket_id == request.path["ticket_id"] and one.is_valid), None)
    if one is None:
        raise UnknownTicket
    code = ticket_code(request.state.settings, order, one)
    return compressed(request.fields, Answer(200, qr_svg(code), fields_of({"content-type": SVG, **PRIVATE})))


async def tickets_pdf(request: Request) -> Answer:
    state: State = request.state
    order = await read_own_order(request)
    pages = ticket_pages(order, await read_show(state.store.db, order.event_id), state.settings)
    if not pages:
        raise NoTickets
    return await _pdf(request, pages, draw=state.pdf_renderer.tickets, name="tickets")


async def receipt_pdf(request: Request) -> Answer:
    state: State = request.state
    order = await read_own_order(request)
    if not (order.charges or order.confirmed_at_ms):
        raise NoReceipt
    receipt = receipt_content(order, await read_show(state.store.db, order.event_id), seller=state.settings.seller)
    return await _pdf(request, receipt, draw=state.pdf_renderer.receipt, name="receipt")


async def calendar(request: Request) -> Answer:
    state: State = request.state
    order = await read_own_order(request)
    reference, show = order.reference, await read_show(state.store.db, order.event_id)
    if show.starts_at is None:
        raise NotFound("The time of this event is not known.")
    entry = CalendarEntry(
        uid=f"{reference}@onsale", made_at=to_datetime(now_ms()), starts_at=show.starts_at, ends_at=show.ends_at,
        zone=show.zone, name=show.name, venue=show.venue, url=f"{state.settings.public_url}/o/{reference}",
        description=_places(order, show), language=order.language,
    )  # fmt: skip
    name = {"content-disposition": f'attachment; filename="{reference}.ics"'}
    sent = {"content-type": f"{CALENDAR}; charset=utf-8", **PRIVATE, **name}
    return compressed(request.fields, Answer(200, calendar_file(entry), fields_of(sent)))


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


async def create_session(request: Request) -> Answer:
    """Sets the order's cookie for a request with the order's own token as bearer token, which the link in a mail has in
    its fragment.
    """
    state, reference = request.state, request.path["reference"]
    opened = state.authenticator.order_of_token(request)
    if opened is None:
        raise NoCredential
    if opened != reference or await state.store.read(reference) is None:
        raise UnknownOrder
    return Answer(204, b"", (*fields_of(PRIVATE), order_key(state, reference)[1]))


async def _pdf(
    request: Request, content: Document, *, draw: Callable[[Document], Awaitable[bytes]], name: str
) -> Answer:
    """The document, or 304 if the caller has it. Raises `TooManyRequests`, `Overloaded`."""
    reference, etag = request.path["reference"], f'"{content_hash(content)}"'
    headers = {**PRIVATE, "cache-control": "private, no-cache", "etag": etag}
    if etag in (request.header(b"if-none-match") or ""):
        return Answer(304, b"", fields_of(headers))
    request.state.pdf_limiter.check(reference)
    headers |= {"content-type": PDF, "content-disposition": f'attachment; filename="{name}-{reference}.pdf"'}
    return Answer(200, await draw(content), fields_of(headers))


ORDER = "/orders/{reference}"
NOT_MODIFIED = {304: ("Not modified since the ETag in If-None-Match", None)}
_route = partial(FastRoute, tag="tickets", patterns={"reference": REFERENCE_PATTERN, "ticket_id": "^[A-Z0-9]{12}$"})
FAST_ROUTES = [
    _route(
        "GET", f"{ORDER}/tickets", list_tickets, summary="List the tickets of an order with their codes",
        description=getdoc(list_tickets),
        answers={200: ("The tickets", TicketsAnswer)},
    ),
    _route(
        "GET", f"{ORDER}/tickets/{{ticket_id}}.svg", ticket_picture, summary="Get a ticket's code as SVG",
        answers={200: ("The code", SVG)},
    ),
    _route(
        "GET", f"{ORDER}/tickets.pdf", tickets_pdf, summary="Get the tickets of an order as PDF",
        answers={200: ("The tickets", PDF), **NOT_MODIFIED},
    ),
    _route(
        "GET", f"{ORDER}/receipt.pdf", receipt_pdf, summary="Get the receipt of an order as PDF",
        answers={200: ("The receipt", PDF), **NOT_MODIFIED},
    ),
    _route(
        "GET", f"{ORDER}/event.ics", calendar, summary="Get the show of an order as a calendar file",
        answers={200: ("The show", CALENDAR)},
    ),
    _route(
        "POST", f"{ORDER}/key", create_session, summary="Create a browser session for an order",
        description=getdoc(create_session),
        answers={204: ("The cookie is set", None)},
    ),
]  # fmt: skip
