"""CSV exports of seats and sales, read in pages by key and streamed, so that memory stays bounded.

An export during a sale is not one snapshot: each page is read by itself. Cells that a spreadsheet would run as a
formula are escaped.
"""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import Layout
from shared.postgres.engine import statement
from shared.report.csv_export import csv_head, csv_lines

PAGE_ROWS = 1_000
SEATS = statement(__package__, "seats")
SALES = statement(__package__, "sales")
SEAT_COLUMNS = (
    "seat_id", "section_id", "section_name", "row", "number", "status", "allotment_id", "price_minor", "currency",
    "reservation_id",
)  # fmt: skip
SALE_COLUMNS = (
    "reservation_id", "order_reference", "confirmed_at", "section_id", "section_name", "seat_id", "quantity",
    "unit_price_minor", "currency", "holder", "email",
)  # fmt: skip


async def _page(db: AsyncEngine, query: TextClause, **values: Any) -> list[Any]:
    async with db.connect() as connection:
        return list(await connection.execute(query, {**values, "count_max": PAGE_ROWS}))


async def seats_csv(db: AsyncEngine, layout: Layout) -> AsyncIterator[bytes]:
    """Every seat, by section and position."""
    yield csv_head(SEAT_COLUMNS)
    section_id, position = "", -1
    while rows := await _page(db, SEATS, event_id=layout.event_id, section_id=section_id, position=position):
        cells = []
        for row in rows:
            section = layout.sections.get(row.section_id)
            name, price_minor = (section.name, section.price_of(row.position)) if section else (None, None)
            cells.append((
                f"{row.section_id}-{row.row}-{row.label}", row.section_id, name, row.row, row.label, row.status,
                row.allotment_id, price_minor, layout.currency, row.reservation_id,
            ))  # fmt: skip
        yield csv_lines(cells)
        section_id, position = rows[-1].section_id, rows[-1].position


async def sales_csv(db: AsyncEngine, layout: Layout) -> AsyncIterator[bytes]:
    """One row per sold seat, and per reservation and GA section."""
    yield csv_head(SALE_COLUMNS)
    after, position = "", ("", -1)
    while rows := await _page(
        db, SALES, event_id=layout.event_id, reservation_id=after, section_id=position[0], position=position[1]
    ):
        cells = []
        for row in rows:
            section = layout.sections.get(row.section_id)
            seat_id = section.seat_id(row.position) if section and row.position >= 0 else None
            cells.append((
                row.reservation_id, row.order_reference, row.confirmed_at.isoformat(), row.section_id,
                section.name if section else None, seat_id, row.quantity, row.unit_price_minor, row.currency,
                row.holder, row.email,
            ))  # fmt: skip
        yield csv_lines(cells)
        after, position = rows[-1].reservation_id, (rows[-1].section_id, rows[-1].position)
