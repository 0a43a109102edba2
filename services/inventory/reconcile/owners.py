"""Whose a seat is: what the seat says against the live reservations, read in parts however many there are.

A seat names its reservation, and a reservation lists its seats. Where the two tell different stories, one of two reads
finds it: a live reservation whose seat does not name it, or a seat that names no live reservation.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from services.inventory.stock.key_ranges import Part, sections_at_once
from shared.postgres.engine import statement
from shared.runtime.group_commit import chunks

UNNAMED_OWNERS = statement(__package__, "unnamed_owners")
UNOWNED_SEATS = statement(__package__, "unowned_seats")
OWNERS = statement(__package__, "owners")
PLACES_AT_ONCE = 1_000


class Dispute(NamedTuple):
    """A seat that does not name each of its live owners, or names somebody who is none. What it says and should say,
    as `status:reservation_id`, and how many bought it.
    """

    section_id: str
    position: int
    seen: str
    should_be: str
    buyers: int


async def disputes(
    connection: AsyncConnection, event_id: str, sections: Iterable[Row[Any]], parts: Iterable[Part]
) -> list[Dispute]:
    """All of them, in the snapshot of `connection`. Of a seat in doubt every live owner is known: they are among those
    that claim it and the one it names.
    """
    claims: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for part in parts:
        for row in await connection.execute(UNNAMED_OWNERS, part):
            claims[row.section_id, row.position].update(filter(None, (row.named, row.owner)))
    for some in sections_at_once(sections):
        asked = {"event_id": event_id, "section_ids": [row.section_id for row in some]}
        for row in await connection.execute(UNOWNED_SEATS, asked):
            claims[row.section_id, row.position].add(row.named)
    found = []
    for places in chunks(sorted(claims), PLACES_AT_ONCE):
        triples = [(*place, reservation_id) for place in places for reservation_id in claims[place]]
        section_ids, positions, ids = map(list, zip(*triples, strict=True))
        asked = {"event_id": event_id, "section_ids": section_ids, "positions": positions, "ids": ids}
        rows = await connection.execute(OWNERS, asked)
        found += [_dispute(list(owners)) for _, owners in groupby(rows, lambda row: (row.section_id, row.position))]
    return found


def _dispute(owners: Sequence[Row[Any]]) -> Dispute:
    first = owners[0]
    buyers = sum(row.owner_status == "confirmed" for row in owners)
    should_be = f"{'sold' if buyers else 'held'}:{first.owner}" if first.owner else "available"
    return Dispute(first.section_id, first.position, first.seen, should_be, buyers)
