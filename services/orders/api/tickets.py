"""The fans' API of an order's tickets and their codes, and the session of a mail's link."""

from functools import partial
from inspect import getdoc
from operator import not_

from pydantic import BaseModel, Field

from services.orders.api.orders import order_key, read_own_order
from services.orders.problems import UnknownOrder, UnknownTicket
from services.orders.state import State
from services.orders.tickets.show import read_show
from services.orders.tickets.tickets import name_on, qr_svg, ticket_code, tickets_of
from shared.contracts.event_parts.names import NamesWanted
from shared.errors.problems import NoCredential
from shared.runtime.clock import from_datetime, rfc3339
from shared.web.answers import JSON, NO_STORE, Answer, compressed, fields_of
from shared.web.fast_routes import FastRoute
from shared.web.request import REFERENCE_PATTERN, Request
from shared.words.words import words

SVG = "image/svg+xml"
PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class ShowAnswer(BaseModel):
    """The show that tickets are for; `when` is its local time in words."""

    event_id: str
    name: str
    venue: str
    when: str


class TicketAnswer(BaseModel):
    """A ticket; `code` is what a scanner reads, none for a void ticket. `proof` is what is shown with it at the
    door because of its price type, `name` who comes with it, if the event asks for names.
    """

    ticket_id: str
    section_id: str
    seat_id: str | None
    place: str
    type_id: str | None = Field(None, exclude_if=not_)
    type_name: str | None = Field(None, exclude_if=not_)
    proof: str | None = Field(None, exclude_if=not_)
    status: str
    void_at: str | None
    code: str | None
    name: str | None = None


class TicketsAnswer(BaseModel):
    """The tickets of an order. `window_s` is how long a code is valid before it must be fetched again, 0 for ever.
    `names` says which names are on them: none, the customer's (`order`), or one of each (`ticket`); the buyer may
    change them until `names_until`.
    """

    reference: str
    event: ShowAnswer
    window_s: int
    names: NamesWanted = "none"
    names_until: str | None = None
    tickets: list[TicketAnswer]


async def list_tickets(request: Request) -> Answer:
    """Empty until the order is confirmed. Where codes rotate, `window_s` says how often to fetch them again."""
    state: State = request.state
    order = await read_own_order(request)
    show, text = await read_show(state.store.db, order.event_id), words(order.language)
    found = TicketsAnswer(
        reference=order.reference,
        event=ShowAnswer(event_id=show.event_id, name=show.name, venue=show.venue, when=show.when(text)),
        window_s=state.settings.ticket_window_s,
        names=show.names,
        names_until=rfc3339(from_datetime(show.names_end)) if show.names != "none" and show.names_end else None,
        tickets=[
            TicketAnswer(
                ticket_id=one.ticket_id,
                section_id=one.section_id,
                seat_id=one.seat_id,
                place=show.place(one.section_id, one.seat_id, text),
                type_id=one.of_type.type_id if one.of_type else None,
                type_name=one.of_type.name if one.of_type else None,
                proof=one.of_type.proof if one.of_type else None,
                status="valid" if one.is_valid else "void",
                void_at=rfc3339(one.void_at_ms) if one.void_at_ms else None,
                code=ticket_code(state.settings, order, one) if one.is_valid else None,
                name=name_on(one, order, show),
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


ORDER = "/orders/{reference}"
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
        "POST", f"{ORDER}/key", create_session, summary="Create a browser session for an order",
        description=getdoc(create_session),
        answers={204: ("The cookie is set", None)},
    ),
]  # fmt: skip
