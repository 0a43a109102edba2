"""The tickets of an order: which to issue, which are issued, and the signed code that a scanner reads.

An order's tickets and their ids follow from its lines alone, so issuing twice issues nothing new. A code is signed when
it is requested, with the current key; its ticket's row says whether the ticket is still valid.
"""

import hashlib
import io
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import segno
from sqlalchemy import select

from services.orders.order.next_step import Order
from services.orders.order.references import readable_code
from services.orders.settings import Settings
from services.orders.tables import order_line
from services.orders.tickets.tables import ticket
from shared.postgres.engine import AsyncEngine
from shared.runtime.clock import now_s
from shared.security.tickets import TicketCode, rotating_code, sign_ticket

ORDER_PREFIX_CHARS = 6


class TicketDraft(NamedTuple):
    """A ticket to issue: the n-th of an order line."""

    line_no: int
    n: int
    event_id: str
    ticket_id: str


def ticket_drafts(order: Order) -> list[TicketDraft]:
    """Every ticket of an order, in the order of its lines."""
    return [
        TicketDraft(line_no, n, order.event_id, ticket_id(order.reference, line_no, n))
        for line_no, line in enumerate(order.lines, start=1)
        for n in range(1, line.quantity + 1)
    ]


def ticket_id(reference: str, line_no: int, n: int) -> str:
    """60 bits derived from the ticket's place in its order; it is no secret."""
    return readable_code(hashlib.sha256(f"ticket:{reference}:{line_no}:{n}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Ticket:
    """An issued ticket."""

    ticket_id: str
    section_id: str
    seat_id: str | None
    void_at: datetime | None
    void_reason: str | None

    @property
    def is_valid(self) -> bool:
        return self.void_at is None


async def read_tickets(db: AsyncEngine, reference: str) -> list[Ticket]:
    """The tickets of one order, in the order of its lines."""
    line = (order_line.c.reference == ticket.c.reference) & (order_line.c.line_no == ticket.c.line_no)
    columns = ticket.c.ticket_id, order_line.c.section_id, order_line.c.seat_id, ticket.c.void_at, ticket.c.void_reason
    rows = (
        select(*columns)
        .join(order_line, line)
        .where(ticket.c.reference == reference)
        .order_by(ticket.c.line_no, ticket.c.n)
    )
    async with db.connect() as connection:
        return [Ticket(**row) for row in (await connection.execute(rows)).mappings()]


@dataclass(frozen=True, slots=True)
class TicketSigner:
    """Signs the codes of tickets."""

    settings: Settings

    @property
    def window_s(self) -> int:
        """How many seconds a rotating code is valid; 0 if codes are fixed."""
        return self.settings.ticket_window_s

    def code(self, order: Order, one: Ticket) -> str:
        """The code to show: fixed, or with its rotating part of now."""
        fields = TicketCode(
            event_id=order.event_id, ticket_id=one.ticket_id, section_id=one.section_id, seat_id=one.seat_id or "",
            order=order.reference[:ORDER_PREFIX_CHARS], window_s=self.window_s,
        )  # fmt: skip
        code = sign_ticket(self.settings.ticket_keys, fields)
        if not self.window_s:
            return code
        return f"{code}.{rotating_code(self.secret(one.ticket_id), self.window_s, at_s=now_s())}"

    def secret(self, ticket_id: str) -> bytes:
        """The key of this ticket's rotating code; it stays the same when signing keys change."""
        return self.settings.order_token_keys.mac("ticket", ticket_id)


def qr_svg(code: str) -> bytes:
    """The code as a QR code in SVG."""
    drawn = io.BytesIO()
    options: dict[str, Any] = {"kind": "svg", "border": 4, "light": "#fff", "dark": "#000", "omitsize": True}
    segno.make(code, error="m", micro=False).save(drawn, xmldecl=False, **options)
    return drawn.getvalue()
