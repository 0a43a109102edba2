"""Export of an event's orders as CSV: one line for each seat, and one for the GA tickets of each section.

It is read in pages, so no event is too large for memory; during a sale its pages are not of one moment.
"""

from collections.abc import AsyncIterator

from shared.postgres.engine import AsyncEngine, statement
from shared.report.csv_export import csv_head, csv_lines

PAGE_ORDERS = 500
_EXPORT = statement(__package__, "order_export")


async def orders_csv(db: AsyncEngine, event_id: str) -> AsyncIterator[bytes]:
    """Oldest orders first."""
    after: str | None = None
    while True:
        async with db.connect() as connection:
            bound = {"event_id": event_id, "after": after, "count_max": PAGE_ORDERS}
            page = await connection.execute(_EXPORT, bound)
            rows = page.all()
        if after is None:
            yield csv_head(page.keys())
        if not rows:
            return
        yield csv_lines(map(_cell, row) for row in rows)
        after = rows[-1].reference


def _cell(value: object) -> object:
    return value.isoformat() if hasattr(value, "isoformat") else value
