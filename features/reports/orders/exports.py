"""Exports of an event: its orders as CSV, a line for each seat and one for the GA tickets of each section and
price type; and its tickets, valid or void, as JSON and as CSV, for scanners that work without a network.

They are read in pages. Where codes rotate an export of tickets has the secret of each, so it is for operators only.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row, TextClause

from features.reports.reading import csv_download, pages
from features.reports.schemas import ScannerTicket, ScannerTickets
from services.orders.model.order import TypeNames
from services.orders.settings import Settings
from services.orders.state import OrdersState
from services.orders.tickets.tickets import ORDER_PREFIX_CHARS, ticket_secret
from shared.contracts.event_parts.price_types import USUAL
from shared.contracts.fields import EventId
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime, now_ms, rfc3339
from shared.security.auth import AnOperator
from shared.security.tokens import b64
from shared.web.api_document import file_of
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/orders", tags=["admin"])
_ORDERS, _ISSUED = statement(__package__, "order_export"), statement(__package__, "issued_orders")
PAGE_ORDERS = 500
ORDER_COLUMNS = (
    "reference", "status", "created_at", "confirmed_at", "customer_name", "customer_email", "customer_phone",
    "total_minor", "currency", "section_id", "seat_id", "quantity", "returned", "unit_price_minor", "provider",
    "charge_ref", "charged_minor", "refunded_minor", "paid_minor", "discounts_minor", "fees_minor", "taxes_minor",
    "included_taxes_minor", "refunded_outside_minor", "disputed_minor", "dispute", "type_id", "type_name",
)  # fmt: skip
TICKET_COLUMNS = tuple(ScannerTicket.model_fields)
Status = Annotated[Literal["valid", "void"] | None, Query(description="Only tickets of this status")]


@router.get(
    "/export.csv", operation_id="export_orders_csv", summary="Export an event's orders as CSV",
    responses=file_of("text/csv"), response_class=Response,
)  # fmt: skip
async def export_orders(state: OrdersState, _operator: AnOperator, event_id: EventId) -> StreamingResponse:
    return csv_download(f"{event_id}-orders", ORDER_COLUMNS, _orders(state.db, _ORDERS, event_id))


@router.get(
    "/events/{event_id}/tickets.json", operation_id="list_scanner_tickets",
    summary="Export the tickets of an event for scanners", responses={200: {"model": ScannerTickets}},
)  # fmt: skip
async def export_tickets_json(
    event_id: EventIdPath, state: OrdersState, _operator: AnOperator, status: Status = None
) -> StreamingResponse:
    """It has the secrets of rotating codes: keep it on scanners only."""
    tickets = _tickets(state.db, state.settings, event_id, status)

    async def parts() -> AsyncIterator[bytes]:
        head = {"event_id": event_id, "as_of": rfc3339(now_ms()), "window_s": state.settings.ticket_window_s}
        yield orjson.dumps(head)[:-1] + b',"tickets":['
        separator = b""
        async for page in tickets:
            yield separator + orjson.dumps(page)[1:-1]
            separator = b","
        yield b"]}"

    return StreamingResponse(parts(), media_type="application/json", headers={"cache-control": "no-store"})


@router.get(
    "/events/{event_id}/tickets.csv", operation_id="export_tickets_csv",
    summary="Export the tickets of an event as CSV", responses=file_of("text/csv"), response_class=Response,
)  # fmt: skip
async def export_tickets_csv(
    event_id: EventIdPath, state: OrdersState, _operator: AnOperator, status: Status = None
) -> StreamingResponse:
    rows = ([each.values() for each in page] async for page in _tickets(state.db, state.settings, event_id, status))
    return csv_download(f"tickets-{event_id}", TICKET_COLUMNS, rows)


def _orders(db: AsyncEngine, query: TextClause, event_id: str) -> AsyncIterator[Sequence[Row[Any]]]:
    """Some orders at a time, the oldest first."""
    return pages(db, query, ("reference",), event_id=event_id, reference=None, count_max=PAGE_ORDERS)


async def _tickets(
    db: AsyncEngine, settings: Settings, event_id: str, status: str | None
) -> AsyncIterator[list[dict[str, Any]]]:
    """The fields of `ScannerTicket`, in their order, of the tickets of some orders at a time. They are dicts, because
    an event has up to a million of them.
    """
    async for orders in _orders(db, _ISSUED, event_id):
        if page := [ticket for order in orders for ticket in _of_order(order, settings, status)]:
            yield page


def _of_order(order: Row[Any], settings: Settings, status: str | None) -> Iterator[dict[str, Any]]:
    issued_at, types = rfc3339(from_datetime(order.fulfilled_at)), TypeNames.read(order.price_types)
    for line in order.lines:
        of_type = types.find(line.get("type_id", USUAL))
        for ticket in line["tickets"]:
            void_at_ms = ticket.get("void_at_ms")
            if status in (None, "void" if void_at_ms else "valid"):
                yield {
                    "ticket_id": ticket["id"], "section_id": line["section_id"], "seat_id": line.get("seat_id"),
                    "order": order.reference[:ORDER_PREFIX_CHARS], "status": "void" if void_at_ms else "valid",
                    "issued_at": issued_at, "void_at": rfc3339(void_at_ms) if void_at_ms else None,
                    "void_reason": ticket.get("void_reason"),
                    "secret": b64(ticket_secret(settings, ticket["id"])) if settings.ticket_window_s else None,
                    "type_id": of_type.type_id if of_type else None,
                    "type_name": of_type.name if of_type else None,
                    "proof": of_type.proof if of_type else None,
                    "name": ticket.get("name") or order.name,
                }  # fmt: skip
