"""CSV exports of seats and sales, read in pages by key and streamed."""

from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row

from features.reports.reading import csv_download, pages
from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import section_of
from services.inventory.state import StateDep
from shared.postgres.engine import AsyncEngine, statement
from shared.security.auth import AnOperator
from shared.web.api_document import file_of
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
PAGE_ROWS = 1_000
SEATS = statement(__package__, "seats")
SALES = statement(__package__, "sales")
SEAT_COLUMNS = (
    "seat_id", "section_id", "section_name", "row", "number", "status", "allotment_id", "price_minor", "currency",
    "reservation_id",
)  # fmt: skip
SALE_COLUMNS = (
    "reservation_id", "order_reference", "confirmed_at", "section_id", "section_name", "seat_id", "quantity",
    "unit_price_minor", "currency", "holder", "email", "type_id",
)  # fmt: skip
Cells = AsyncIterator[list[tuple[Any, ...]]]


@router.get(
    "/{what}.csv", operation_id="export_stock_csv", summary="Export seats or sales as CSV",
    responses=file_of("text/csv"), response_class=Response,
)  # fmt: skip
async def get_csv(
    _operator: AnOperator, state: StateDep, event_id: EventIdPath, what: Literal["seats", "sales"]
) -> StreamingResponse:
    columns, cells = {"seats": (SEAT_COLUMNS, seats), "sales": (SALE_COLUMNS, sales)}[what]
    rows = cells(state.autocommit_db, state.catalogue.layout(event_id))
    return csv_download(f"{event_id}-{what}", columns, rows)


async def seats(db: AsyncEngine, layout: Layout) -> Cells:
    """Every seat, by section and position."""

    def cells(row: Row[Any]) -> tuple[Any, ...]:
        section = layout.sections.get(row.section_id)
        name, price_minor = (section.name, section.price_of(row.position)) if section else (None, None)
        return (
            f"{row.section_id}-{row.row}-{row.label}", row.section_id, name, row.row, row.label, row.status,
            row.allotment_id, price_minor, layout.currency, row.reservation_id,
        )  # fmt: skip

    first = {"section_id": "", "position": -1}
    async for rows in pages(db, SEATS, (*first,), event_id=layout.event_id, count_max=PAGE_ROWS, **first):
        yield [cells(row) for row in rows]


async def sales(db: AsyncEngine, layout: Layout) -> Cells:
    """One row per sold seat, and per reservation, GA section and price type."""

    def cells(row: Row[Any]) -> tuple[Any, ...]:
        section = layout.sections.get(section_of(row.section_id))
        seat_id = section.seat_id(row.position) if section and row.position >= 0 else None
        return (
            row.reservation_id, row.order_reference, row.confirmed_at.isoformat(), section_of(row.section_id),
            section.name if section else None, seat_id, row.quantity, row.unit_price_minor, row.currency,
            row.holder, row.email, row.type_id or layout.usual_type_id,
        )  # fmt: skip

    first = {"reservation_id": "", "section_id": "", "position": -1, "type_id": ""}
    async for rows in pages(db, SALES, (*first,), event_id=layout.event_id, count_max=PAGE_ROWS, **first):
        yield [cells(row) for row in rows]
