"""What a scanner loads before the doors open: every ticket of an event and whether it is void, read in pages by key.

With moving codes it holds each ticket's secret, so it is for operators only.
"""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Row, literal, select, true, tuple_
from starlette.responses import StreamingResponse

from services.orders.state import State
from services.orders.tables import order_line
from services.orders.tickets.tables import ticket
from services.orders.tickets.tickets import ORDER_CHARS, TicketSigner
from shared.postgres.engine import AsyncEngine
from shared.runtime.clock import from_datetime, now_ms, rfc3339
from shared.security.auth import AnOperator
from shared.security.tokens import b64
from shared.web.api_document import file_of
from shared.web.fields import EventIdPath

router = APIRouter(prefix="/admin/orders", tags=["admin"])
Wanted = Annotated[Literal["valid", "void"] | None, Query(description="Only these")]
PAGE_ROWS = 1_000
COLUMNS = ("ticket_id", "section_id", "seat_id", "order", "status", "issued_at", "void_at", "void_reason", "secret")
Told = dict[str, Any]


@router.get("/events/{event_id}/tickets.json", summary="Export the tickets of an event for scanners")
async def as_json(event_id: EventIdPath, request: Request, operator: AnOperator, status: Wanted = None) -> Any:
    state: State = request.app.state.deps

    async def parts() -> AsyncIterator[bytes]:
        window_s = TicketSigner(state.settings).window_s
        head = {"event_id": event_id, "as_of": rfc3339(now_ms()), "window_s": window_s}
        yield orjson.dumps(head)[:-1] + b',"tickets":['
        separator = b""
        async for page in _pages(state, event_id, status):
            yield separator + orjson.dumps(page)[1:-1]
            separator = b","
        yield b"]}"

    return StreamingResponse(parts(), media_type="application/json", headers={"cache-control": "no-store"})


@router.get(
    "/events/{event_id}/tickets.csv",
    summary="Export settlement as CSV",
    responses=file_of("text/csv"),
    response_class=Response,
)
async def as_csv(event_id: EventIdPath, request: Request, operator: AnOperator, status: Wanted = None) -> Any:
    state: State = request.app.state.deps

    async def parts() -> AsyncIterator[str]:
        yield _lines([COLUMNS])
        async for page in _pages(state, event_id, status):
            yield _lines([[_defused(told[column]) for column in COLUMNS] for told in page])

    disposition = {"content-disposition": f'attachment; filename="tickets-{event_id}.csv"'}
    return StreamingResponse(parts(), media_type="text/csv", headers={"cache-control": "no-store", **disposition})


async def _pages(state: State, event_id: str, status: str | None) -> AsyncIterator[list[Told]]:
    codes, after = TicketSigner(state.settings), ""
    while rows := await _rows(state.book.db, event_id, status, after):
        yield [_told(row, codes) for row in rows]
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


def _told(row: Row[Any], codes: TicketSigner) -> Told:
    return {
        "ticket_id": row.ticket_id, "section_id": row.section_id, "seat_id": row.seat_id,
        "order": row.reference[:ORDER_CHARS], "status": "void" if row.void_at else "valid",
        "issued_at": rfc3339(from_datetime(row.issued_at)),
        "void_at": rfc3339(from_datetime(row.void_at)) if row.void_at else None, "void_reason": row.void_reason,
        "secret": b64(codes.secret(row.ticket_id)) if codes.window_s else None,
    }  # fmt: skip


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    page = io.StringIO()
    csv.writer(page).writerows(rows)
    return page.getvalue()


def _defused(cell: Any) -> Any:
    """Text as text: no spreadsheet may run what an operator typed as a reason."""
    return "'" + cell if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell
