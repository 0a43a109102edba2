"""The tickets of an order, and the signed code that a scanner reads.

An order's tickets and their ids follow from its lines alone. A code is signed when it is requested, with the current
key; the line of its ticket says whether the ticket is still valid.
"""

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import segno

from services.orders.model.order import Order, TypeName
from services.orders.settings import Settings
from services.orders.tickets.show import ShowInfo
from shared.contracts.event_file import EventFile
from shared.runtime.clock import now_s
from shared.security.tickets import TicketCode, rotating_code, sign_ticket

ORDER_PREFIX_CHARS = 6


@dataclass(slots=True)
class PaperPorts:
    """What a feature that prints papers offers, as it fills it in; without one mails have no attachment.

    `tickets`: the valid tickets of an order as PDF, or None if it has none. Raises `Overloaded`. `warnings_of`: what an
    operator should know before the texts of this event file are printed.
    """

    tickets: Callable[[Order, ShowInfo], Awaitable[bytes | None]] | None = None
    warnings_of: Callable[[EventFile], Awaitable[list[str]]] | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """One admission; `of_type` is its price type, None of an event without types."""

    ticket_id: str
    section_id: str
    seat_id: str | None
    of_type: TypeName | None
    void_at_ms: int | None
    void_reason: str | None
    name: str | None = None

    @property
    def is_valid(self) -> bool:
        return self.void_at_ms is None


def tickets_of(order: Order) -> list[Ticket]:
    """The issued tickets of an order, in the order of its lines."""
    if order.fulfilled_at_ms is None:
        return []
    return [
        Ticket(
            ticket_id=ticket.id, section_id=line.section_id, seat_id=line.seat_id, of_type=of_type,
            void_at_ms=ticket.void_at_ms, void_reason=ticket.void_reason, name=ticket.name,
        )
        for line in order.lines
        for of_type in [order.price_types.find(line.type_id)]
        for ticket in line.tickets
    ]  # fmt: skip


def name_on(one: Ticket, order: Order, show: ShowInfo) -> str | None:
    """The name on this ticket: its own, or the customer's where the event asks for one an order."""
    return one.name or (order.customer_name if show.names == "order" else None)


def ticket_code(settings: Settings, order: Order, one: Ticket) -> str:
    """The code to show: fixed, or with its rotating part of now."""
    window_s = settings.ticket_window_s
    fields = TicketCode(
        event_id=order.event_id, ticket_id=one.ticket_id, section_id=one.section_id, seat_id=one.seat_id or "",
        order=order.reference[:ORDER_PREFIX_CHARS], window_s=window_s,
        type_id=one.of_type.type_id if one.of_type else "",
    )  # fmt: skip
    code = sign_ticket(settings.ticket_keys, fields)
    if not window_s:
        return code
    return f"{code}.{rotating_code(ticket_secret(settings, one.ticket_id), window_s, at_s=now_s())}"


def ticket_secret(settings: Settings, ticket_id: str) -> bytes:
    """The key of this ticket's rotating code; it stays the same when signing keys change."""
    return settings.order_token_keys.mac("ticket", ticket_id)


def qr_svg(code: str) -> bytes:
    """The code as a QR code in SVG."""
    drawn = io.BytesIO()
    options: dict[str, Any] = {"kind": "svg", "border": 4, "light": "#fff", "dark": "#000", "omitsize": True}
    segno.make(code, error="m", micro=False).save(drawn, xmldecl=False, **options)
    return drawn.getvalue()
