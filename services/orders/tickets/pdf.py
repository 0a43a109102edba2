"""Tickets and receipts as PDF, drawn beside the event loop: a few at once, a bounded number waiting, texts clipped.

The same words are drawn once: papers are kept by a hash of what they say, the latest within a bound of bytes, and who
asks for one that is being drawn waits for it. Names that the font cannot write come out as question marks unless
`print_font` names one that can.

An order on paper: its tickets and its receipt, in the words of its show.
"""

import asyncio
import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import segno
from reportlab.lib.pagesizes import A4, A6
from reportlab.lib.units import mm
from reportlab.lib.utils import simpleSplit
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from services.orders.order.next_step import Order
from services.orders.order.states import SALE
from services.orders.tickets.money import money
from services.orders.tickets.show import ShowInfo
from services.orders.tickets.tickets import Ticket, TicketSigner
from shared.runtime.clock import to_datetime
from shared.web.problems import Overloaded

PAGES_MAX = 200
TEXT_MAX_CHARS = 200
PLAIN, BOLD = "Helvetica", "Helvetica-Bold"
OWN = "onsale-own"
Draw = Callable[[Canvas], None]


class TicketPage(NamedTuple):
    """What one ticket says. Without a code it says to show the order page."""

    show: str
    when: str
    venue: str
    place: str
    reference: str
    ticket_id: str
    code: str | None


class Receipt(NamedTuple):
    """What was bought, paid and given back, in words."""

    seller: str
    show: str
    when: str
    reference: str
    facts: Sequence[str]
    rows: Sequence[tuple[str, str]]
    sums: Sequence[tuple[str, str]]


def name_of(paper: Sequence[TicketPage] | Receipt) -> str:
    """The same for papers that say the same."""
    return hashlib.sha256(repr(paper).encode()).hexdigest()[:32]


class PdfRenderer:
    """Draws in threads of its own. `close` waits for what is being drawn."""

    def __init__(self, *, at_once: int, waiting_max: int, font: Path | None, kept_bytes: int = 0) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="orders-print")
        self._at_once, self._waiting_max, self._asked = at_once, waiting_max, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_max, self._kept_bytes = kept_bytes, 0
        self._drawing: dict[str, asyncio.Future[bytes]] = {}
        self._own = font is not None
        if font is not None:
            pdfmetrics.registerFont(TTFont(OWN, str(font)))

    def close(self) -> None:
        self._threads.shutdown()

    async def tickets(self, pages: Sequence[TicketPage]) -> bytes:
        assert 0 < len(pages) <= PAGES_MAX
        return await self._once(name_of(pages), lambda: _drawn(A6, "Tickets", [self._ticket(page) for page in pages]))

    async def receipt(self, receipt: Receipt) -> bytes:
        assert len(receipt.rows) <= PAGES_MAX
        title = f"Receipt {receipt.reference}"
        return await self._once(name_of(receipt), lambda: _drawn(A4, title, [self._receipt(receipt)]))

    async def _once(self, name: str, draw: Callable[[], bytes]) -> bytes:
        """The paper of this name: kept, being drawn, or drawn now."""
        kept = self._kept.get(name)
        if kept is not None:
            self._kept.move_to_end(name)
            return kept
        drawing = self._drawing.get(name)
        if drawing is None:
            drawing = self._drawing[name] = asyncio.ensure_future(self._print(draw))
            drawing.add_done_callback(partial(self._keep, name))
        return await asyncio.shield(drawing)

    def _keep(self, name: str, drawn: "asyncio.Future[bytes]") -> None:
        del self._drawing[name]
        if drawn.cancelled() or drawn.exception() is not None:
            return
        self._kept[name] = drawn.result()
        self._kept_bytes += len(drawn.result())
        while self._kept_bytes > self._kept_max:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    async def _print(self, draw: Callable[[], bytes]) -> bytes:
        """Raises `Overloaded`."""
        if self._asked >= self._at_once + self._waiting_max:
            raise Overloaded("The printer is busy; the order page shows everything at once.", retry_after_s=3)
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, draw)
        finally:
            self._asked -= 1

    # -- drawing ---------------------------------------------------------------------------------------------------

    def _ticket(self, page: TicketPage) -> Draw:
        def draw(canvas: Canvas) -> None:
            width, height = A6
            left, width_max = 9 * mm, width - 18 * mm
            y = self._text(canvas, page.show, left, height - 14 * mm, width_max, size=15, bold=True, lines=2)
            y = self._text(canvas, page.when, left, y - 1 * mm, width_max, size=9)
            y = self._text(canvas, page.venue, left, y, width_max, size=9, lines=2)
            self._text(canvas, page.place, left, y - 2 * mm, width_max, size=12, bold=True, lines=2)
            if page.code is not None:
                _qr(canvas, page.code, (width - 58 * mm) / 2, 19 * mm, 58 * mm)
            else:
                moving = "The code of this ticket moves: show the order page at the door."
                self._text(canvas, moving, left, 50 * mm, width_max, size=11, lines=3)
            self._text(canvas, f"Order {page.reference} · Ticket {page.ticket_id}", left, 11 * mm, width_max, size=8)

        return draw

    def _receipt(self, receipt: Receipt) -> Draw:
        def draw(canvas: Canvas) -> None:
            width, height = A4
            left, right = 20 * mm, width - 20 * mm
            width_max = right - left
            y = self._text(
                canvas, f"Receipt {receipt.reference}", left, height - 25 * mm, width_max, size=18, bold=True
            )
            for line in (*receipt.seller.splitlines()[:6], receipt.show, receipt.when, *receipt.facts):
                y = self._text(canvas, line, left, y - 1 * mm, width_max, size=10, lines=2)
            y -= 6 * mm
            for rows, bold in ((receipt.rows, False), (receipt.sums, True)):
                for words, amount in rows:
                    if y < 25 * mm:
                        canvas.showPage()
                        y = height - 25 * mm
                    self._amount(canvas, amount, right, y)
                    y = self._text(canvas, words, left, y, width_max - 40 * mm, size=10, bold=bold, lines=2) - 1 * mm
                canvas.line(left, y + 2 * mm, right, y + 2 * mm)
                y -= 4 * mm

        return draw

    def _amount(self, canvas: Canvas, amount: str, right: float, y: float) -> None:
        canvas.setFont(OWN if self._own else PLAIN, 10)
        canvas.drawRightString(right, y, amount)

    def _text(
        self,
        canvas: Canvas,
        text: str,
        x: float,
        y: float,
        width_max: float,
        *,
        size: int,
        bold: bool = False,
        lines: int = 1,
    ) -> float:
        """Draws at most so many lines; the height of the next."""
        font = OWN if self._own else BOLD if bold else PLAIN
        words = " ".join(text[:TEXT_MAX_CHARS].split())
        if not self._own:
            words = words.encode("cp1252", "replace").decode("cp1252")
        canvas.setFont(font, size)
        for line in simpleSplit(words, font, size, width_max)[:lines]:
            canvas.drawString(x, y, line)
            y -= size * 1.25
        return y


def _drawn(size: tuple[float, float], title: str, pages: Sequence[Draw]) -> bytes:
    paper = io.BytesIO()
    canvas = Canvas(paper, pagesize=size, invariant=1)
    canvas.setTitle(title)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return paper.getvalue()


def _qr(canvas: Canvas, code: str, x: float, y: float, size: float) -> None:
    """Runs of dark modules as bars, from the top."""
    matrix = [bytes(row) for row in segno.make(code, error="m", micro=False).matrix_iter(scale=1, border=2)]
    module = size / len(matrix)
    for down, row in enumerate(matrix, start=1):
        start = 0
        while (dark := row.find(1, start)) >= 0:
            end = row.find(0, dark)
            start = len(row) if end < 0 else end
            canvas.rect(x + dark * module, y + size - down * module, (start - dark) * module, module, stroke=0, fill=1)


def pages(order: Order, show: ShowInfo, tickets: list[Ticket], codes: TicketSigner) -> list[TicketPage]:
    """A page for every ticket that is good. A code that moves cannot be printed."""
    return [
        TicketPage(
            show.name, show.when, show.venue, show.place(one.section_id, one.seat_id), order.reference, one.ticket_id,
            None if codes.window_s else codes.code(order, one),
        )
        for one in tickets
        if one.is_valid
    ]  # fmt: skip


def receipt(order: Order, show: ShowInfo, *, seller: str) -> Receipt:
    """What was bought, paid and given back. A price has its fees in it."""
    rows = [
        (f"{line.quantity} × {show.place(line.section_id, line.seat_id)}",
         money(line.quantity * line.unit_price_minor, order.currency))
        for line in order.lines
    ]  # fmt: skip
    sums = [("Total, fees included", money(order.total_minor, order.currency))]
    paid = [c for c in order.charges if c.charge_ref == order.charge_ref or order.status not in SALE]
    for charge in paid:
        at = to_datetime(charge.occurred_at_ms)
        sums.append((f"Paid on {at:%Y-%m-%d} by {charge.provider}", money(charge.amount_minor, charge.currency)))
        on_its_way = sum(r.amount_minor for r in order.refunds if r.charge_ref == charge.charge_ref)
        if back := charge.refunded_minor - on_its_way:
            sums.append(("Refunded", money(-back, charge.currency)))
    ordered = to_datetime(order.created_at_ms)
    facts = (f"Ordered on {ordered:%Y-%m-%d} by {order.customer_name}", f"Status: {order.status.replace('_', ' ')}")
    return Receipt(
        seller, show.name, ", ".join(filter(None, (show.when, show.venue))), order.reference, facts, rows, sums
    )
