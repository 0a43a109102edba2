"""Find and repair rows of PostgreSQL that contradict the live reservations: seats' owners and sections' counters.

A repair never waits: it takes only rows that no other transaction has locked, in the order in which every writer locks,
and only at the version that was read. Several processes may repair at once.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout.selection import SeatPosition, seat_columns
from services.inventory.store.drift import Drift, Kind
from services.inventory.store.snapshot import StockSnapshot
from shared.postgres.engine import statement

REPAIR_SEATS = statement(__package__, "repair_seats")
REPAIR_SECTIONS = statement(__package__, "repair_sections")
LOCK_UNLOCKED_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE SKIP LOCKED"
)
LOCK_UNLOCKED_SEATS = text(
    "SELECT section_id, position FROM inventory.seat s JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM "
    "unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) "
    "AS requested USING (event_id, section_id, position) ORDER BY section_id, position FOR UPDATE OF s SKIP LOCKED"
)
REPAIRED: frozenset[Kind] = frozenset({"database-seat", "database-remaining", "database-blocked"})
OVERSOLD: frozenset[Kind] = frozenset({"database-oversold", "database-sold-twice"})
EXCESS = statement(__package__, "excess")
LOCK_CAPACITY = text(
    "SELECT capacity FROM inventory.section WHERE event_id = :event_id AND section_id = :section_id "
    "FOR UPDATE SKIP LOCKED"
)
ACCEPT_OVERBOOKED = text(
    "UPDATE inventory.section SET overbooked_accepted = overbooked_accepted + :overbooked, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id"
)
Place = dict[str, Any]
SEATS_MAX = 5000
TRIES_MAX, BETWEEN_TRIES_S = 10, 0.005


def inconsistencies(stock: StockSnapshot) -> Iterator[Drift]:
    """All drift inside a snapshot that was read with `check`. Counters are given by how far they are off, which stays
    the same while others sell.
    """
    for section_id, section in stock.sections.items():
        remaining, blocked = section.recorded
        taken = section.overbooked_accepted + blocked + section.held + section.sold
        left = section.available if section.marks else max(0, section.capacity - taken)
        if remaining != left:
            yield Drift("database-remaining", section_id, None, remaining - left, 0)
        if blocked != section.blocked:
            yield Drift("database-blocked", section_id, None, blocked - section.blocked, 0)
        if not section.marks and section.sold and section.sold > section.capacity - blocked:
            yield Drift("database-oversold", section_id, None, section.sold, section.capacity - blocked)
    for seat in stock.disputed:
        if seat.actual != seat.expected:
            yield Drift("database-seat", seat.section_id, seat.position, seat.actual, seat.expected)
        if seat.buyers > 1:
            yield Drift("database-sold-twice", seat.section_id, seat.position, seat.buyers, 1)


async def repair(db: AsyncEngine, event_id: str, found: Iterable[Drift]) -> set[SeatPosition]:
    """Sets seats and counters as the reservations say. Returns the (section_id, position) that changed; -1 is a
    section.

    A section that sells is locked most of the time, so a few tries are made; the rest waits for the next pass.
    """
    left, changed = [drift.seat for drift in found if drift.kind in REPAIRED], set[SeatPosition]()
    for attempt in range(TRIES_MAX):
        sections, some = await _repair_once(db, event_id, left)
        changed |= some
        left = [place for place in left if place[0] not in sections]
        if not left:
            break
        await asyncio.sleep(BETWEEN_TRIES_S * (attempt + 1))
    return changed


async def _repair_once(
    db: AsyncEngine, event_id: str, places: Sequence[SeatPosition]
) -> tuple[set[str], set[SeatPosition]]:
    """The sections that were not locked, and what was changed of them."""
    async with db.begin() as connection:
        values = {"event_id": event_id, "section_ids": sorted({section_id for section_id, _ in places})}
        versions = {r.section_id: r.version for r in await connection.execute(LOCK_UNLOCKED_SECTIONS, values)}
        seats = [place for place in places if place[1] >= 0 and place[0] in versions][:SEATS_MAX]
        free = await connection.execute(LOCK_UNLOCKED_SEATS, {"event_id": event_id, **seat_columns(seats)})
        changed = await repair_seats(connection, event_id, [(r.section_id, r.position) for r in free])
        counted = await repair_sections(connection, event_id, versions)
    return set(versions), set(changed) | {(section_id, -1) for section_id in counted}


async def repair_seats(
    connection: AsyncConnection, event_id: str, seats: Sequence[SeatPosition], *, status_if_free: str = "available"
) -> dict[SeatPosition, str]:
    """Sets seats, which the caller has locked, to the owner the reservations name, or to `status_if_free`. Returns
    those changed, with their new status.
    """
    if not seats:
        return {}
    values = {"event_id": event_id, **seat_columns(seats), "status_if_free": status_if_free}
    return {(r.section_id, r.position): r.status for r in await connection.execute(REPAIR_SEATS, values)}


async def repair_sections(connection: AsyncConnection, event_id: str, versions: dict[str, int]) -> dict[str, int]:
    """Recounts sections, which the caller has locked, by version. Returns those changed, and how much more is left."""
    if not versions:
        return {}
    values = {"event_id": event_id, "section_ids": list(versions), "versions": list(versions.values())}
    return {r.section_id: int(r.more) for r in await connection.execute(REPAIR_SECTIONS, values)}


# -- places that were sold too often: `event_id`, `section_id`, and `position`, -1 for a whole section -----------------


async def honour(db: AsyncEngine, event_id: str, found: Iterable[Drift]) -> None:
    """Accepts what sections were oversold by, so that every ticket stays valid. Who gets a seat that was sold twice,
    nothing here can decide.
    """
    for drift in found:
        if drift.kind == "database-oversold":
            place: Place = {"event_id": event_id, "section_id": drift.subject, "position": -1}
            async with db.begin() as connection:
                if await lock_capacity(connection, place) is not None:
                    await accept_overbooked(connection, place, await count_excess(connection, place))


async def lock_capacity(connection: AsyncConnection, place: Place) -> int | None:
    """Locks the section, so that one process decides, and returns its capacity; None if another has it."""
    capacity: int | None = await connection.scalar(LOCK_CAPACITY, place)
    return capacity


async def count_excess(connection: AsyncConnection, place: Place) -> int:
    """How many tickets too many were sold; accepted ones are none."""
    return int(await connection.scalar(EXCESS, place) or 0)


async def accept_overbooked(connection: AsyncConnection, place: Place, overbooked: int) -> None:
    await connection.execute(ACCEPT_OVERBOOKED, {**place, "overbooked": overbooked})
