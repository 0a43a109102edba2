"""The ledger against itself: what sections and seats say must follow from the live reservations, and is set right here.

Setting right never waits and never hurries anybody: it takes only rows that nobody is changing, in the order in which
every writer locks, and only while their version is the one that was looked at. Several may do it at once.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.stock.change import seat_columns
from services.inventory.stock.snapshot import StockSnapshot
from shared.postgres.engine import statement

RIGHT_SEATS = statement(__package__, "right_seats")
RIGHT_SECTIONS = statement(__package__, "right_sections")
FREE_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE SKIP LOCKED"
)
FREE_SEATS = text(
    "SELECT section_id, position FROM inventory.seat s JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM "
    "unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) AS asked "
    "USING (event_id, section_id, position) ORDER BY section_id, position FOR UPDATE OF s SKIP LOCKED"
)
SEATS_MAX = 5000
TRIES_MAX, BETWEEN_TRIES_S = 10, 0.005


class Inconsistency(NamedTuple):
    """What of the ledger contradicts its reservations: `remaining`, `blocked` or `oversold` of a section, `seat` or
    `sold-twice` of a seat; by how much, and what it says and should say.
    """

    kind: str
    section_id: str
    position: int
    delta: int
    seen: str
    expected: str


def inconsistencies(stock: StockSnapshot) -> list[Inconsistency]:
    """All of them, of a stock whose owners were checked."""
    found = list(_sections(stock))
    for seat in stock.disputed:
        place = seat.section_id, seat.position
        if seat.seen != seat.should_be:
            found.append(Inconsistency("seat", *place, 1, seat.seen, seat.should_be))
        if seat.buyers > 1:
            found.append(Inconsistency("sold-twice", *place, seat.buyers - 1, str(seat.buyers), "1"))
    return found


def _sections(stock: StockSnapshot) -> Iterator[Inconsistency]:
    for section_id, section in stock.sections.items():
        remaining, blocked = section.noted
        gone = section.honoured + blocked + section.held + section.sold
        left = section.available if section.marks else max(0, section.capacity - gone)
        if remaining != left:
            yield Inconsistency("remaining", section_id, -1, remaining - left, str(remaining), str(left))
        if section.blocked != blocked:
            yield Inconsistency(
                "blocked", section_id, -1, blocked - section.blocked, str(blocked), str(section.blocked)
            )
        beyond = section.sold + blocked - section.capacity
        if not section.marks and section.sold and beyond > 0:
            left = section.capacity - blocked
            yield Inconsistency("oversold", section_id, -1, beyond, str(section.sold), str(left))


async def repair(db: AsyncEngine, event_id: str, wrong: Iterable[Inconsistency]) -> set[tuple[str, int]]:
    """Seats and counters to what the reservations say; which places (-1 for a section) were changed.

    A section that sells is in somebody's hands most of the time, so it is tried for a moment; then the next look will.
    """
    left, changed = list(wrong), set[tuple[str, int]]()
    for turn in range(TRIES_MAX):
        sections, seats = await _set_right(db, event_id, left)
        changed |= seats
        left = [w for w in left if w.section_id not in sections]
        if not left:
            break
        await asyncio.sleep(BETWEEN_TRIES_S * (turn + 1))
    return changed


async def _set_right(
    db: AsyncEngine, event_id: str, wrong: Sequence[Inconsistency]
) -> tuple[set[str], set[tuple[str, int]]]:
    """Which sections nobody was changing, and what was changed of them."""
    async with db.begin() as connection:
        asked = {"event_id": event_id, "section_ids": sorted({w.section_id for w in wrong})}
        versions = {r.section_id: r.version for r in await connection.execute(FREE_SECTIONS, asked)}
        seats = [(w.section_id, w.position) for w in wrong if w.kind == "seat" and w.section_id in versions]
        free = await connection.execute(FREE_SEATS, {"event_id": event_id, **seat_columns(seats[:SEATS_MAX])})
        changed = await repair_seats(connection, event_id, [(r.section_id, r.position) for r in free])
        counted = await repair_sections(connection, event_id, versions)
    return set(versions), set(changed) | {(section_id, -1) for section_id in counted}


async def repair_seats(
    connection: AsyncConnection, event_id: str, seats: Sequence[tuple[str, int]], *, free_mark: str = "available"
) -> dict[tuple[str, int], str]:
    """These seats, which the caller has locked, go to whom the reservations name, else are `free_mark`; those changed,
    with their new status.
    """
    if not seats:
        return {}
    rows = await connection.execute(RIGHT_SEATS, {"event_id": event_id, **seat_columns(seats), "free_mark": free_mark})
    return {(r.section_id, r.position): r.status for r in rows}


async def repair_sections(connection: AsyncConnection, event_id: str, versions: dict[str, int]) -> dict[str, int]:
    """These sections, which the caller has locked, are counted anew; those changed, and how much more is left."""
    if not versions:
        return {}
    values = {"event_id": event_id, "section_ids": list(versions), "versions": list(versions.values())}
    return {r.section_id: int(r.more) for r in await connection.execute(RIGHT_SECTIONS, values)}
