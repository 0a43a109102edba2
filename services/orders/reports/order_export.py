"""Export of an event's orders as CSV: one line for each seat, and one for the GA tickets of each section.

It is read in pages, so no event is too large for memory; during a sale its pages are not of one moment.
"""

from collections.abc import AsyncIterator

from shared.postgres.engine import AsyncEngine, statement
from shared.web.csv_export import csv_lines

PAGE_ORDERS = 500
_EXPORT = statement(__package__, "order_export")
COLUMNS = (
    "reference", "status", "created_at", "confirmed_at", "customer_name", "customer_email", "customer_phone",
    "total_minor", "currency", "section_id", "seat_id", "quantity", "returned", "unit_price_minor", "provider",
    "charge_ref", "charged_minor", "refunded_minor",
)  # fmt: skip


async def orders_csv(db: AsyncEngine, event_id: str) -> AsyncIterator[bytes]:
    """Oldest orders first."""
    yield csv_lines([COLUMNS])
    after: str | None = None
    while True:
        async with db.connect() as connection:
            bound = {"event_id": event_id, "after": after, "count_max": PAGE_ORDERS}
            rows = list(await connection.execute(_EXPORT, bound))
        if not rows:
            return
        yield csv_lines([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)
        after = rows[-1].reference


def _cell(value: object) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else value
