"""Every ticket of an event and whether it is void, for scanners that work without a network; as JSON and as CSV.

It is read in pages in the order of its key, so no event is too large for memory. Where codes rotate it has the secret
of each ticket, so it is for operators only.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from sqlalchemy import Row, literal, select, true, tuple_

from services.orders.tables import order_line
from services.orders.tickets.tables import ticket
from services.orders.tickets.tickets import ORDER_PREFIX_CHARS, TicketSigner
from shared.contracts.admin.order_reports import ScannerTicket
from shared.postgres.engine import AsyncEngine
from shared.report.csv_export import csv_head, csv_lines
from shared.runtime.clock import from_datetime, now_ms, rfc3339
from shared.security.tokens import b64

PAGE_ROWS = 1_000
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
    after = ""
    while rows := await _rows(db, event_id, status, after):
        yield [_scanner_ticket(row, signer) for row in rows]
        after = rows[-1].ticket_id


async def _rows(db: AsyncEngine, event_id: str, status: str | None, after: str) -> Sequence[Row[Any]]:
    """The next tickets in the order of their key, each with its line. Both are read from an index, whatever the planner
    knows of these tables, because the event bounds the key instead of choosing it.
    """
    line = (order_line.c.reference == ticket.c.reference) & (order_line.c.line_no == ticket.c.line_no)
    place = select(order_line.c.section_id, order_line.c.seat_id).where(line).offset(0).lateral()
    page = (
        select(ticket, place.c.section_id, place.c.seat_id)
        .join(place, true())
        .where(tuple_(ticket.c.event_id, ticket.c.ticket_id) > tuple_(literal(event_id), literal(after)))
        .where(ticket.c.event_id <= event_id)
    )
    if status is not None:
        page = page.where(ticket.c.void_at.is_(None) if status == "valid" else ticket.c.void_at.is_not(None))
    async with db.connect() as connection:
        return (await connection.execute(page.order_by(ticket.c.event_id, ticket.c.ticket_id).limit(PAGE_ROWS))).all()


def _scanner_ticket(row: Row[Any], signer: TicketSigner) -> dict[str, Any]:
    """The fields of a `ScannerTicket`; a dict, because an event has up to a million of them."""
    return {
        "ticket_id": row.ticket_id, "section_id": row.section_id, "seat_id": row.seat_id,
        "order": row.reference[:ORDER_PREFIX_CHARS], "status": "void" if row.void_at else "valid",
        "issued_at": rfc3339(from_datetime(row.issued_at)),
        "void_at": rfc3339(from_datetime(row.void_at)) if row.void_at else None, "void_reason": row.void_reason,
        "secret": b64(signer.secret(row.ticket_id)) if signer.window_s else None,
    }  # fmt: skip
