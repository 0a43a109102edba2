"""Disputed seats: those whose row and live reservations disagree about the owner, read in bounded parts.

A seat names its reservation, and a reservation lists its seats. Two statements find every disagreement: live
reservations whose seat does not name them, and seats that name no live reservation.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.store.drift import SeatRow
from services.inventory.store.key_ranges import KeyRange, section_groups
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import statement

UNNAMED_OWNERS = statement(__package__, "unnamed_owners")
UNOWNED_SEATS = statement(__package__, "unowned_seats")
OWNERS = statement(__package__, "owners")
PLACES_AT_ONCE = 1_000


class Dispute(NamedTuple):
    """A seat whose owner is disputed: what its row says, what it should say, and how many bought it."""

    section_id: str
    position: int
    actual: SeatRow
    expected: SeatRow
    buyers: int


async def disputes(
    connection: AsyncConnection, event_id: str, sections: Iterable[Row[Any]], ranges: Iterable[KeyRange]
) -> list[Dispute]:
    """All disputed seats, in the snapshot of `connection`. Every live owner of a disputed seat is either among those
    that claim it or the one it names.
    """
    claims: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for key_range in ranges:
        for row in await connection.execute(UNNAMED_OWNERS, key_range):
            claims[row.section_id, row.position].update(filter(None, (row.named, row.owner)))
    for some in section_groups(sections):
        values = {"event_id": event_id, "section_ids": [row.section_id for row in some]}
        for row in await connection.execute(UNOWNED_SEATS, values):
            claims[row.section_id, row.position].add(row.named)
    found = []
    for places in chunks(sorted(claims), PLACES_AT_ONCE):
        triples = [(*place, reservation_id) for place in places for reservation_id in claims[place]]
        section_ids, positions, ids = map(list, zip(*triples, strict=True))
        values = {"event_id": event_id, "section_ids": section_ids, "positions": positions, "ids": ids}
        rows = await connection.execute(OWNERS, values)
        found += [_dispute(list(owners)) for _, owners in groupby(rows, lambda row: (row.section_id, row.position))]
    return found


def _dispute(owners: Sequence[Row[Any]]) -> Dispute:
    first, buyers = owners[0], sum(row.owner_status == "confirmed" for row in owners)
    expected = SeatRow("sold" if buyers else "held" if first.owner else "available", first.owner)
    return Dispute(first.section_id, first.position, SeatRow(first.status, first.reservation_id), expected, buyers)
