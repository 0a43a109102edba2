"""Find and repair rows of PostgreSQL that contradict the live reservations: seats' owners and sections' counters.

A repair never waits: it takes only rows that no other transaction has locked, in the order in which every writer locks,
and only at the version that was read. Several processes may repair at once.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.stock.change import seat_columns
from services.inventory.stock.snapshot import StockSnapshot
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
SEATS_MAX = 5000
TRIES_MAX, BETWEEN_TRIES_S = 10, 0.005


class Inconsistency(NamedTuple):
    """A row that contradicts the reservations. `kind` is `remaining`, `blocked` or `oversold` of a section, `seat` or
    `sold-twice` of a seat; `delta` says by how much.
    """

    kind: str
    section_id: str
    position: int
    delta: int
    actual: str
    expected: str


def inconsistencies(stock: StockSnapshot) -> list[Inconsistency]:
    """All inconsistencies of a snapshot that was read with `check`."""
    found = list(_section_inconsistencies(stock))
    for seat in stock.disputed:
        place = seat.section_id, seat.position
        if seat.actual != seat.expected:
            found.append(Inconsistency("seat", *place, 1, seat.actual, seat.expected))
        if seat.buyers > 1:
            found.append(Inconsistency("sold-twice", *place, seat.buyers - 1, str(seat.buyers), "1"))
    return found


def _section_inconsistencies(stock: StockSnapshot) -> Iterator[Inconsistency]:
    for section_id, section in stock.sections.items():
        remaining, blocked = section.recorded
        taken = section.overbooked_accepted + blocked + section.held + section.sold
        left = section.available if section.marks else max(0, section.capacity - taken)
        if remaining != left:
            yield _of_section("remaining", section_id, remaining, left)
        if section.blocked != blocked:
            yield _of_section("blocked", section_id, blocked, section.blocked)
        beyond = section.sold + blocked - section.capacity
        if not section.marks and section.sold and beyond > 0:
            yield _of_section("oversold", section_id, section.sold, section.capacity - blocked)


def _of_section(kind: str, section_id: str, actual: int, expected: int) -> Inconsistency:
    return Inconsistency(
        kind, section_id, position=-1, delta=actual - expected, actual=str(actual), expected=str(expected)
    )


async def repair(db: AsyncEngine, event_id: str, found: Iterable[Inconsistency]) -> set[tuple[str, int]]:
    """Sets seats and counters as the reservations say. Returns the (section_id, position) that changed; -1 is a
    section.

    A section that sells is locked most of the time, so a few tries are made; the rest waits for the next pass.
    """
    left, changed = list(found), set[tuple[str, int]]()
    for attempt in range(TRIES_MAX):
        sections, seats = await _repair_once(db, event_id, left)
        changed |= seats
        left = [one for one in left if one.section_id not in sections]
        if not left:
            break
        await asyncio.sleep(BETWEEN_TRIES_S * (attempt + 1))
    return changed


async def _repair_once(
    db: AsyncEngine, event_id: str, found: Sequence[Inconsistency]
) -> tuple[set[str], set[tuple[str, int]]]:
    """The sections that were not locked, and what was changed of them."""
    async with db.begin() as connection:
        values = {"event_id": event_id, "section_ids": sorted({one.section_id for one in found})}
        versions = {r.section_id: r.version for r in await connection.execute(LOCK_UNLOCKED_SECTIONS, values)}
        seats = [(one.section_id, one.position) for one in found if one.kind == "seat" and one.section_id in versions]
        free = await connection.execute(LOCK_UNLOCKED_SEATS, {"event_id": event_id, **seat_columns(seats[:SEATS_MAX])})
        changed = await repair_seats(connection, event_id, [(r.section_id, r.position) for r in free])
        counted = await repair_sections(connection, event_id, versions)
    return set(versions), set(changed) | {(section_id, -1) for section_id in counted}


async def repair_seats(
    connection: AsyncConnection, event_id: str, seats: Sequence[tuple[str, int]], *, status_if_free: str = "available"
) -> dict[tuple[str, int], str]:
    """Sets seats, which the caller has locked, to the owner the reservations name, or to `status_if_free`. Returns
    those changed, with their new status.
    """
    if not seats:
        return {}
    rows = await connection.execute(
        REPAIR_SEATS, {"event_id": event_id, **seat_columns(seats), "status_if_free": status_if_free}
    )
    return {(r.section_id, r.position): r.status for r in rows}


async def repair_sections(connection: AsyncConnection, event_id: str, versions: dict[str, int]) -> dict[str, int]:
    """Recounts sections, which the caller has locked, by version. Returns those changed, and how much more is left."""
    if not versions:
        return {}
    values = {"event_id": event_id, "section_ids": list(versions), "versions": list(versions.values())}
    return {r.section_id: int(r.more) for r in await connection.execute(REPAIR_SECTIONS, values)}
