"""Exports of an event: its orders as CSV, a line for each seat and one for the GA tickets of each section; and its
tickets, valid or void, as JSON and as CSV, for scanners that work without a network.

They are read in pages, so no event is too large for memory; during a sale the pages are not of one moment. Where codes
rotate an export of tickets has the secret of each, so it is for operators only.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import orjson
from sqlalchemy import Row

from services.orders.settings import Settings
from services.orders.tickets.tickets import ORDER_PREFIX_CHARS, ticket_secret
from shared.contracts.admin.order_reports import ScannerTicket
from shared.postgres.engine import AsyncEngine, statement
from shared.report.csv_export import csv_head, csv_lines
from shared.runtime.clock import from_datetime, now_ms, rfc3339
from shared.security.tokens import b64

_ORDERS, _ISSUED = statement(__package__, "order_export"), statement(__package__, "issued_orders")
PAGE_ORDERS = 500
TICKET_COLUMNS = tuple(ScannerTicket.model_fields)


async def orders_csv(db: AsyncEngine, event_id: str) -> AsyncIterator[bytes]:
    """Oldest orders first."""
    head = True
    async for columns, rows in _pages(db, _ORDERS, event_id):
        if head:
            yield csv_head(columns)
        yield csv_lines(rows)
        head = False


async def tickets_json(db: AsyncEngine, settings: Settings, event_id: str, status: str | None) -> AsyncIterator[bytes]:
    """The parts of one `ScannerTickets` as JSON; `status` is `valid`, `void` or none for all."""
    head = {"event_id": event_id, "as_of": rfc3339(now_ms()), "window_s": settings.ticket_window_s}
    yield orjson.dumps(head)[:-1] + b',"tickets":['
    separator = b""
    async for page in _ticket_pages(db, settings, event_id, status):
        yield separator + orjson.dumps(page)[1:-1]
        separator = b","
    yield b"]}"


async def tickets_csv(db: AsyncEngine, settings: Settings, event_id: str, status: str | None) -> AsyncIterator[bytes]:
    """The same as CSV, one line a ticket."""
    yield csv_head(TICKET_COLUMNS)
    async for page in _ticket_pages(db, settings, event_id, status):
        yield csv_lines([each[column] for column in TICKET_COLUMNS] for each in page)


async def _pages(db: AsyncEngine, query: Any, event_id: str) -> AsyncIterator[tuple[Sequence[str], Sequence[Row[Any]]]]:
    """The columns and the rows of some orders at a time, oldest first; the last page has none."""
    bound: dict[str, Any] = {"event_id": event_id, "after": None, "count_max": PAGE_ORDERS}
    rows: Sequence[Row[Any]] | None = None
    while rows is None or rows:
        async with db.connect() as connection:
            page = await connection.execute(query, bound)
            columns, rows = list(page.keys()), page.all()
        yield columns, rows
        bound["after"] = rows[-1].reference if rows else None


async def _ticket_pages(
    db: AsyncEngine, settings: Settings, event_id: str, status: str | None
) -> AsyncIterator[list[dict[str, Any]]]:
    async for _, orders in _pages(db, _ISSUED, event_id):
        if page := [ticket for order in orders for ticket in _tickets(order, settings, status)]:
            yield page


def _tickets(order: Row[Any], settings: Settings, status: str | None) -> Iterator[dict[str, Any]]:
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
                    "secret": b64(ticket_secret(settings, ticket["id"])) if settings.ticket_window_s else None,
                }  # fmt: skip
