"""An event's stock in parts that a statement reads well within its time, however large the event is."""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

Part = dict[str, Any]
SEATS_AT_ONCE, RESERVATIONS_AT_ONCE = 100_000, 20_000
SLICE_END = text(
    "SELECT max(reservation_id) FROM (SELECT reservation_id FROM inventory.reservation "
    "WHERE (event_id, reservation_id) > (:event_id, :after) AND event_id <= :event_id "
    "ORDER BY event_id, reservation_id LIMIT :count_max) AS slice"
)


def sections_at_once(rows: Iterable[Row[Any]]) -> Iterator[list[Row[Any]]]:
    """Seated sections, in groups whose seats are read by one statement."""
    group: list[Row[Any]] = []
    seats = 0
    for row in rows:
        if row.kind != "seated":
            continue
        if group and seats + row.rows * row.seats_per_row > SEATS_AT_ONCE:
            yield group
            group, seats = [], 0
        group.append(row)
        seats += row.rows * row.seats_per_row
    if group:
        yield group


async def slices(connection: AsyncConnection, event_id: str) -> list[Part]:
    """All reservations in slices of their key, as statements take them: after `after`, up to `upto`."""
    parts, after = list[Part](), ""
    while True:
        asked = {"event_id": event_id, "after": after, "count_max": RESERVATIONS_AT_ONCE}
        upto = await connection.scalar(SLICE_END, asked)
        if upto is None:
            return parts
        parts.append({"event_id": event_id, "after": after, "upto": upto})
        after = upto
