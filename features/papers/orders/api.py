"""The part of orders: the fans' API of an order's papers, what it offers to mail and to who describes an event, and the
check of the seller's letters.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import Field
from pydantic_settings import BaseSettings

from features.papers.orders.lettering import unprintable
from features.papers.orders.pdf import PdfRenderer, Receipt, TicketPage, content_hash, receipt_content, ticket_pages
from services.orders.api.orders import read_own_order
from services.orders.api.tickets import ORDER, PRIVATE
from services.orders.model.order import Order
from services.orders.state import State
from services.orders.tickets.show import ShowInfo, read_show
from shared.concurrency.background import Loops
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.contracts.event_file import EventFile
from shared.errors.problems import NotFound, Problem
from shared.runtime.clock import now_ms, to_datetime
from shared.security.limits import FanLimit
from shared.web.answers import Answer, compressed, fields_of
from shared.web.calendar_file import CalendarEntry, calendar_file
from shared.web.fast_routes import FastRoute
from shared.web.parts import Part
from shared.web.request import REFERENCE_PATTERN, Request
from shared.words.words import words

Document = TypeVar("Document", Sequence[TicketPage], Receipt)
PDF, CALENDAR = "application/pdf", "text/calendar"
NAMED_MAX = 10
PDF_WORKERS = 2  # PDFs that one process renders at once
PRINTS_WAITING_MAX = 50  # PDFs that may wait for rendering; further requests are rejected
PRINTS_PER_MINUTE, PRINTS_BURST = 12, 12  # PDFs of one order that are rendered a minute, and at once
COUNTED_MAX = 65_536


class NoTickets(Problem, status=409):
    """This order has no tickets: it is not confirmed, or it was refunded."""


class NoReceipt(Problem, status=409):
    """This order has no receipt: nothing was paid yet."""


class PapersSettings(BaseSettings):
    """Settings of orders."""

    print_font: Path | None = Field(None, description="A TrueType font that papers use before those of the package.")
    seller: str = Field("", max_length=500, description="The seller on receipts: name, address, tax number.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    """What one process prints with."""

    printer: PdfRenderer
    limiter: FanLimit
    seller: str

    async def warnings_of(self, file: EventFile) -> list[str]:
        """What an operator should know before the texts of this event file are printed."""
        fees, taxes = (fee.name for fee in file.fees), (tax.name for tax in file.taxes)
        types = (text for each in file.price_types for text in (each.name, each.proof or ""))
        texts = [file.name, file.venue, *(section.name for section in file.sections), *types, *fees, *taxes]
        missing = await self.printer.unprintable(texts)
        named = ", ".join(f"{sign} (U+{ord(sign):04X})" for sign in missing[:NAMED_MAX])
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        warning = (
            f"Tickets and receipts cannot show {named}{more}: letters are printed as boxes, and pictures are left out. "
            "Write the names in a script that papers have; the documentation of tickets names them."
        )
        return [warning] if missing else []


@asynccontextmanager
async def open_papers(state: State, _loops: Loops) -> AsyncIterator[Papers]:
    """Offers the tickets as PDF to mail, and the warnings to whoever applies an event file."""
    settings = state.settings
    assert isinstance(settings, PapersSettings)
    printer = PdfRenderer(workers=PDF_WORKERS, waiting_max=PRINTS_WAITING_MAX, font=settings.print_font)
    limiter = FanLimit(
        per_s=PRINTS_PER_MINUTE / 60, burst=PRINTS_BURST, keys_max=COUNTED_MAX, shared_by=settings.processes
    )
    papers = Papers(printer=printer, limiter=limiter, seller=settings.seller)

    async def tickets(order: Order, show: ShowInfo) -> bytes | None:
        pages = ticket_pages(order, show, state.settings)
        return await printer.tickets(pages) if pages else None

    state.papers.tickets, state.papers.warnings_of = tickets, papers.warnings_of
    try:
        yield papers
    finally:
        printer.close()


def check_seller(settings: PapersSettings) -> list[Check]:
    """The seller on receipts; names of an event are checked when its file is applied."""
    missing = unprintable([settings.seller], custom=False)
    if settings.print_font is not None or not missing:
        return [ok("Papers", settings.seller.partition("\n")[0] or "no seller on receipts")]
    advice = "Write it in a script that papers have, or set ORDERS_PRINT_FONT. See docs/use/tickets.md."
    return [suspicious("Papers", f"receipts cannot show these letters of ORDERS_SELLER: {missing}", advice)]


async def tickets_pdf(request: Request) -> Answer:
    state: State = request.state
    order = await read_own_order(request)
    pages = ticket_pages(order, await read_show(state.store.db, order.event_id), state.settings)
    if not pages:
        raise NoTickets
    return await _pdf(request, pages, draw=request.part(Papers).printer.tickets, name="tickets")


async def receipt_pdf(request: Request) -> Answer:
    papers, order = request.part(Papers), await read_own_order(request)
    if not (order.charges or order.confirmed_at_ms):
        raise NoReceipt
    receipt = receipt_content(order, await read_show(request.state.store.db, order.event_id), seller=papers.seller)
    return await _pdf(request, receipt, draw=papers.printer.receipt, name="receipt")


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
    named = [
        (line, show.ticket(line.section_id, line.seat_id, order.price_types.find(line.type_id), text)) for line in kept
    ]
    places = (name if line.seat_id else text("several", n=line.remaining, name=name) for line, name in named)
    return "\n".join((text("mail_order", reference=order.reference), *places))


async def _pdf(
    request: Request, content: Document, *, draw: Callable[[Document], Awaitable[bytes]], name: str
) -> Answer:
    """The document, or 304 if the caller has it. Raises `TooManyRequests`, `Overloaded`."""
    reference, etag = request.path["reference"], f'"{content_hash(content)}"'
    headers = {**PRIVATE, "cache-control": "private, no-cache", "etag": etag}
    if etag in (request.header(b"if-none-match") or ""):
        return Answer(304, b"", fields_of(headers))
    request.part(Papers).limiter.check(reference)
    headers |= {"content-type": PDF, "content-disposition": f'attachment; filename="{name}-{reference}.pdf"'}
    return Answer(200, await draw(content), fields_of(headers))


NOT_MODIFIED = {304: ("Not modified since the ETag in If-None-Match", None)}
_route = partial(FastRoute, "GET", tag="tickets", patterns={"reference": REFERENCE_PATTERN})
PART = Part(
    fast_routes=[
        _route(
            f"{ORDER}/tickets.pdf", tickets_pdf, summary="Get the tickets of an order as PDF",
            answers={200: ("The tickets", PDF), **NOT_MODIFIED},
        ),
        _route(
            f"{ORDER}/receipt.pdf", receipt_pdf, summary="Get the receipt of an order as PDF",
            answers={200: ("The receipt", PDF), **NOT_MODIFIED},
        ),
        _route(
            f"{ORDER}/event.ics", calendar, summary="Get the show of an order as a calendar file",
            answers={200: ("The show", CALENDAR)},
        ),
    ],
    settings=PapersSettings, open=open_papers, checks=check_seller,
)  # fmt: skip
