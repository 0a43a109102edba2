"""The tickets of an order: which there are to be, which there are, and the signed code that each shows at the door.

Which tickets an order has follows from its lines alone, and so does the name of each: issuing again issues nothing. A
code is signed when it is asked for, always with the key of now; whether a ticket is still good its row says.
"""

import hashlib
import io
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import segno
from sqlalchemy import select

from services.orders.order.next_step import Order
from services.orders.order.references import readable
from services.orders.settings import Settings
from services.orders.tables import order_line
from services.orders.tickets.tables import ticket
from shared.postgres.engine import AsyncEngine
from shared.runtime.clock import now_s
from shared.security.tickets import TicketCode, beat, sign_ticket

ORDER_CHARS = 6


class TicketDraft(NamedTuple):
    """One ticket to be: the n-th of a line."""

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
    """60 bits that follow from where the ticket stands; no secret."""
    return readable(hashlib.sha256(f"ticket:{reference}:{line_no}:{n}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket as its row says."""

    ticket_id: str
    section_id: str
    seat_id: str | None
    void_at: datetime | None
    void_reason: str | None

    @property
    def is_valid(self) -> bool:
        return self.void_at is None


async def tickets_of(db: AsyncEngine, reference: str) -> list[Ticket]:
    """The tickets of one order, as its lines stand."""
    line = (order_line.c.reference == ticket.c.reference) & (order_line.c.line_no == ticket.c.line_no)
    rows = select(
        ticket.c.ticket_id, order_line.c.section_id, order_line.c.seat_id, ticket.c.void_at, ticket.c.void_reason
    ).join(order_line, line)
    rows = rows.where(ticket.c.reference == reference).order_by(ticket.c.line_no, ticket.c.n)
    async with db.connect() as connection:
        return [Ticket(*row) for row in await connection.execute(rows)]


@dataclass(frozen=True, slots=True)
class TicketSigner:
    """Signs what tickets show."""

    settings: Settings

    @property
    def window_s(self) -> int:
        """How long a code is good; 0 for ever."""
        return self.settings.ticket_window_s

    def code(self, order: Order, one: Ticket) -> str:
        said = TicketCode(
            order.event_id, one.ticket_id, one.section_id, one.seat_id or "", order.reference[:ORDER_CHARS],
            self.window_s,
        )  # fmt: skip
        code = sign_ticket(self.settings.ticket_keys, said)
        return f"{code}.{beat(self.secret(one.ticket_id), self.window_s, at_s=now_s())}" if self.window_s else code

    def secret(self, ticket_id: str) -> bytes:
        """What the beat of this ticket is made with; the same for good, whichever key signs."""
        return self.settings.order_token_keys.mac("ticket", ticket_id)


def svg(code: str) -> bytes:
    """A QR code that prints and scales."""
    drawn = io.BytesIO()
    options: dict[str, Any] = {"kind": "svg", "border": 4, "light": "#fff", "dark": "#000", "omitsize": True}
    segno.make(code, error="m", micro=False).save(drawn, xmldecl=False, **options)
    return drawn.getvalue()
