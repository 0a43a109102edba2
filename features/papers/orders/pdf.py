"""Tickets and receipts of an order as PDF, in the order's language.

They are drawn in threads, a few at once and a bounded number waiting, with texts clipped to their space. Concurrent
requests for one document share its drawing.
"""

import asyncio
import hashlib
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import segno
from reportlab.lib.pagesizes import A4, A6
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

from features.papers.orders.lettering import Letters, register_custom_font, unprintable
from services.orders.model.order import Order
from services.orders.settings import Settings
from services.orders.tickets.bill import day_of, order_bill
from services.orders.tickets.show import ShowInfo
from services.orders.tickets.tickets import name_on, ticket_code, tickets_of
from shared.concurrency.coalescing import SingleFlight
from shared.errors.problems import Overloaded
from shared.words.words import words

PAGES_MAX = 200
QR, QR_BELOW_TYPE = 58, 48  # mm of a side; where a ticket says more the code leaves it the space
Draw = Callable[[Canvas], None]
T = TypeVar("T")


class TicketPage(NamedTuple):
    """The content of one ticket. Without a code it tells the holder to show the order page. `price_type` and `proof`
    are empty where there is none.
    """

    language: str
    show: str
    when: str
    venue: str
    place: str
    reference: str
    ticket_id: str
    code: str | None
    price_type: str = ""
    proof: str = ""
    name: str = ""


class Receipt(NamedTuple):
    """The content of a receipt, in words: rows that add up to the first of `sums`, and each tax."""

    language: str
    seller: str
    show: str
    when: str
    reference: str
    facts: Sequence[str]
    rows: Sequence[tuple[str, str]]
    sums: Sequence[tuple[str, str]]
    taxes: Sequence[tuple[str, str]] = ()


def content_hash(document: Sequence[TicketPage] | Receipt) -> str:
    """A hash that is the same for documents with the same content; it is their ETag."""
    return hashlib.sha256(repr(document).encode()).hexdigest()[:32]


class PdfRenderer:
    """Draws in threads of its own. `close` waits for the drawings in progress."""

    def __init__(self, *, workers: int, waiting_max: int, font: Path | None) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="orders-pdf")
        self._drawings: SingleFlight[bytes] = SingleFlight(in_flight_max=workers + waiting_max)
        self._has_custom_font = font is not None
        if font is not None:
            register_custom_font(font)

    def close(self) -> None:
        self._threads.shutdown()

    async def tickets(self, pages: Sequence[TicketPage]) -> bytes:
        assert 0 < len(pages) <= PAGES_MAX
        text = words(pages[0].language)
        draws = [partial(self._draw_ticket, page) for page in pages]
        return await self._drawn(content_hash(pages), A6, text.language, text("stock_title"), draws)

    async def receipt(self, receipt: Receipt) -> bytes:
        assert len(receipt.rows) <= PAGES_MAX
        text = words(receipt.language)
        title = text("paper_receipt", reference=receipt.reference)
        return await self._drawn(
            content_hash(receipt), A4, text.language, title, [partial(self._draw_receipt, receipt)]
        )

    async def unprintable(self, texts: Sequence[str]) -> str:
        """The characters of these texts that papers cannot show."""
        return await self._in_thread(partial(unprintable, texts, custom=self._has_custom_font))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _drawn(self, key: str, *document: Any) -> bytes:
        """The document with this hash: from a drawing in progress, or drawn now."""
        try:
            return await self._drawings.run(key, partial(self._in_thread, partial(_document, *document)))
        except Overloaded as full:
            raise Overloaded(
                "Too many PDFs are being drawn. Try again, or use the order page.", retry_after_s=3
            ) from full

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _draw_ticket(self, page: TicketPage, canvas: Canvas) -> None:
        text = words(page.language)
        draw = partial(Letters(text, custom_font=self._has_custom_font).draw, canvas)
        width, height = A6
        left, width_max = 9 * mm, width - 18 * mm
        y = draw(page.show, left, height - 14 * mm, width_max, size=15, bold=True, lines=2 if page.price_type else 3)
        y = draw(page.when, left, y - 1 * mm, width_max, size=9, lines=2)
        y = draw(page.venue, left, y, width_max, size=9, lines=3)
        y = draw(page.place, left, y - 2 * mm, width_max, size=12, bold=True, lines=2)
        if page.price_type:
            y = draw(page.price_type, left, y - 1 * mm, width_max, size=14, bold=True)
        if page.proof:
            draw(text("ticket_proof", proof=page.proof), left, y, width_max, size=8, lines=2)
        if page.code is not None:
            size = (QR_BELOW_TYPE if page.price_type else QR) * mm
            _draw_qr(canvas, page.code, (width - size) / 2, 19 * mm, size)
        else:
            draw(text("paper_code_moves"), left, 50 * mm, width_max, size=11, lines=3)
        draw(page.name, left, 14.5 * mm, width_max, size=10, bold=True)
        foot = text("paper_ticket", reference=page.reference, ticket=page.ticket_id)
        draw(foot, left, 11 * mm, width_max, size=8)

    def _draw_receipt(self, receipt: Receipt, canvas: Canvas) -> None:
        text = words(receipt.language)
        draw = partial(Letters(text, custom_font=self._has_custom_font).draw, canvas)
        width, height = A4
        left, right = 20 * mm, width - 20 * mm
        width_max = right - left
        title = text("paper_receipt", reference=receipt.reference)
        y = draw(title, left, height - 25 * mm, width_max, size=18, bold=True)
        for line in filter(None, (*receipt.seller.splitlines()[:12], receipt.show, receipt.when, *receipt.facts)):
            y = draw(line, left, y - 1 * mm, width_max, size=10, lines=2)
        y -= 6 * mm
        label_from = left if text.direction == "ltr" else left + 40 * mm
        parts = ((receipt.rows, False), (receipt.sums, True), *([(receipt.taxes, False)] if receipt.taxes else []))
        for rows, bold in parts:
            for label, amount in rows:
                if y < 25 * mm:
                    canvas.showPage()
                    y = height - 25 * mm
                draw(amount, left, y, width_max, size=10, at_end=True)
                y = draw(label, label_from, y, width_max - 40 * mm, size=10, bold=bold, lines=2) - 1 * mm
            canvas.line(left, y + 2 * mm, right, y + 2 * mm)
            y -= 4 * mm


def _document(size: tuple[float, float], language: str, title: str, pages: Sequence[Draw]) -> bytes:
    paper = io.BytesIO()
    canvas = Canvas(paper, pagesize=size, invariant=1, lang=language)
    canvas.setTitle(title)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return paper.getvalue()


def _draw_qr(canvas: Canvas, code: str, x: float, y: float, size: float) -> None:
    """Draws each run of dark modules as one bar, row by row from the top."""
    matrix = [bytes(row) for row in segno.make(code, error="m", micro=False).matrix_iter(scale=1, border=2)]
    module = size / len(matrix)
    for down, row in enumerate(matrix, start=1):
        start = 0
        while (dark := row.find(1, start)) >= 0:
            end = row.find(0, dark)
            start = len(row) if end < 0 else end
            canvas.rect(x + dark * module, y + size - down * module, (start - dark) * module, module, stroke=0, fill=1)


def ticket_pages(order: Order, show: ShowInfo, settings: Settings) -> list[TicketPage]:
    """A page for every valid ticket. Rotating codes are not printed: they would be invalid soon."""
    text = words(order.language)
    return [
        TicketPage(
            language=text.language, show=show.name, when=show.when(text), venue=show.venue,
            place=show.place(one.section_id, one.seat_id, text), reference=order.reference, ticket_id=one.ticket_id,
            code=None if settings.ticket_window_s else ticket_code(settings, order, one),
            price_type=one.of_type.name if one.of_type else "",
            proof=(one.of_type.proof or "") if one.of_type else "",
            name=name_on(one, order, show) or "",
        )
        for one in tickets_of(order)
        if one.is_valid
    ]  # fmt: skip


def receipt_content(order: Order, show: ShowInfo, *, seller: str) -> Receipt:
    """What was bought, paid and refunded; days are those of the venue."""
    text = words(order.language)
    rows, sums, taxes = order_bill(order, show, text).written(text, order.currency)
    facts = (
        text("paper_ordered", date=day_of(show, order.created_at_ms, text), name=order.customer_name),
        text("status", status=text(f"status_{order.status}")),
    )
    return Receipt(
        language=text.language, seller=seller, show=show.name, when=text.listed(show.when(text), show.venue),
        reference=order.reference, facts=facts, rows=rows, sums=sums, taxes=taxes,
    )  # fmt: skip
