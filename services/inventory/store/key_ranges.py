"""Bounded parts of an event's stock, so that each statement stays within its time limit however large the event is."""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

KeyRange = dict[str, Any]
SEATS_PER_STATEMENT, RESERVATIONS_PER_RANGE = 100_000, 20_000
RANGE_END = text(
    "SELECT max(reservation_id) FROM (SELECT reservation_id FROM inventory.reservation "
    "WHERE (event_id, reservation_id) > (:event_id, :after) AND event_id <= :event_id "
    "ORDER BY event_id, reservation_id LIMIT :count_max) AS range"
)


def section_groups(rows: Iterable[Row[Any]]) -> Iterator[list[Row[Any]]]:
    """Seated sections, in groups of at most `SEATS_PER_STATEMENT` seats (a larger section is a group of its own)."""
    group: list[Row[Any]] = []
    seats = 0
    for row in rows:
        if row.kind != "seated":
            continue
        if group and seats + row.rows * row.seats_per_row > SEATS_PER_STATEMENT:
            yield group
            group, seats = [], 0
        group.append(row)
        seats += row.rows * row.seats_per_row
    if group:
        yield group


async def key_ranges(connection: AsyncConnection, event_id: str) -> list[KeyRange]:
    """The event's reservations in ranges of their key: `after` (exclusive) to `upto` (inclusive)."""
    ranges, after = list[KeyRange](), ""
    while True:
        values = {"event_id": event_id, "after": after, "count_max": RESERVATIONS_PER_RANGE}
        upto = await connection.scalar(RANGE_END, values)
        if upto is None:
            return ranges
        ranges.append({"event_id": event_id, "after": after, "upto": upto})
        after = upto
