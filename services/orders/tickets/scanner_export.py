"""Every ticket of an event and whether it is void, for scanners that work without a network; as JSON and as CSV.

It is read in pages of orders, so no event is too large for memory. Where codes rotate it has the secret
of each ticket, so it is for operators only.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
from sqlalchemy import Row

from services.orders.tickets.tickets import ORDER_PREFIX_CHARS, TicketSigner
from shared.contracts.admin.order_reports import ScannerTicket
from shared.postgres.engine import AsyncEngine, statement
from shared.report.csv_export import csv_head, csv_lines
from shared.runtime.clock import from_datetime, now_ms, rfc3339
from shared.security.tokens import b64

_ISSUED = statement(__package__, "issued_orders")
PAGE_ORDERS = 500
COLUMNS = tuple(ScannerTicket.model_fields)


async def json_parts(db: AsyncEngine, signer: TicketSigner, event_id: str, status: str | None) -> AsyncIterator[bytes]:
    """The parts of one `ScannerTickets` as JSON; `status` is `valid`, `void` or none for all."""
    head = {"event_id": event_id, "as_of": rfc3339(now_ms()), "window_s": signer.window_s}
    yield orjson.dumps(head)[:-1] + b',"tickets":['
    separator = b""
    async for page in _pages(db, signer, event_id, status):
        yield separator + orjson.dumps(page)[1:-1]
        separator = b","
    yield b"]}"


async def csv_parts(db: AsyncEngine, signer: TicketSigner, event_id: str, status: str | None) -> AsyncIterator[bytes]:
    """The same as CSV, one line a ticket."""
    yield csv_head(COLUMNS)
    async for page in _pages(db, signer, event_id, status):
        yield csv_lines([each[column] for column in COLUMNS] for each in page)


async def _pages(
    db: AsyncEngine, signer: TicketSigner, event_id: str, status: str | None
) -> AsyncIterator[list[dict[str, Any]]]:
    after = None
    while True:
        bound = {"event_id": event_id, "after": after, "count_max": PAGE_ORDERS}
        async with db.connect() as connection:
            orders = (await connection.execute(_ISSUED, bound)).all()
        if not orders:
            return
        after = orders[-1].reference
        if page := [ticket for order in orders for ticket in _tickets(order, signer, status)]:
            yield page


def _tickets(order: Row[Any], signer: TicketSigner, status: str | None) -> Iterator[dict[str, Any]]:
    """The fields of each `ScannerTicket`; a dict, because an event has up to a million of them."""
    issued_at = rfc3339(from_datetime(order.fulfilled_at))
    for line in order.lines:
        for ticket in line["tickets"]:
            void_at_ms = ticket.get("void_at_ms")
            if status in (None, "void" if void_at_ms else "valid"):
                yield {
                    "ticket_id": ticket["id"], "section_id": line["section_id"], "seat_id": line.get("seat_id"),
                    "order": order.reference[:ORDER_PREFIX_CHARS], "status": "void" if void_at_ms else "valid",
                    "issued_at": issued_at, "void_at": rfc3339(void_at_ms) if void_at_ms else None,
                    "void_reason": ticket.get("void_reason"),
                    "secret": b64(signer.secret(ticket["id"])) if signer.window_s else None,
                }  # fmt: skip
