"""What the ledger says at one moment: every section's map and counts, every live reservation, every holder's tickets.

Read in one REPEATABLE READ transaction, so that a basket is never seen half moved. Only looking is done so: taking
under REPEATABLE READ would decide on a snapshot older than its locks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout import ROW_END
from services.inventory.record import Record, read
from shared.postgres import statement

MARKS = {"available": ".", "held": "h", "sold": "s", "blocked": "x"}
SECTION_COUNTS = statement(__package__, "section_counts")
WITHOUT_STATISTICS = text("SET LOCAL enable_nestloop = off")
EVENT = text("SELECT gate_epoch, version, pass_floor FROM inventory.event WHERE event_id = :event_id")
SHAPES = text("SELECT section_id, kind, rows, seats_per_row FROM inventory.section WHERE event_id = :event_id")
GONE_SEATS = text(
    "SELECT section_id, position, status FROM inventory.seat WHERE event_id = :event_id AND status <> 'available'"
)
LIVE = text(
    "SELECT reservation_id FROM inventory.reservation "
    "WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')"
)
USAGE = text(
    "SELECT r.holder, sum(n) AS tickets, coalesce(sum(n) FILTER (WHERE r.status = 'confirmed'), 0) AS bought FROM ("
    " SELECT reservation_id, count(*) AS n FROM inventory.reservation_seat WHERE event_id = :event_id GROUP BY 1"
    " UNION ALL"
    " SELECT reservation_id, sum(quantity) FROM inventory.reservation_ga WHERE event_id = :event_id GROUP BY 1"
    ") AS places JOIN inventory.reservation r ON r.event_id = :event_id AND r.reservation_id = places.reservation_id "
    "WHERE r.status IN ('pending_payment', 'paying', 'confirmed') GROUP BY r.holder"
)
SOLD = text(
    "SELECT reservation_id FROM inventory.reservation WHERE event_id = :event_id AND status = 'confirmed' "
    "AND reservation_id = ANY(CAST(:ids AS text[]))"
)
REVOKED = text(
    "SELECT jti, expires_at_ms FROM inventory.revoked_pass WHERE event_id = :event_id "
    "AND expires_at_ms > extract(epoch FROM clock_timestamp()) * 1000 - 3600000"
)


@dataclass(frozen=True, slots=True)
class SectionStock:
    """One section; `marks` is its map, empty for GA. What is kept aside is blocked."""

    capacity: int
    available: int
    held: int
    sold: int
    blocked: int
    marks: str = ""


@dataclass(frozen=True, slots=True)
class Stock:
    """The ledger of one event at one moment; `version` is the event's. `sold_meanwhile`: those of the asked
    reservations that were bought.
    """

    gate_epoch: int
    version: int
    sections: dict[str, SectionStock]
    live: list[Record]
    usage: dict[str, int]
    revoked: list[tuple[str, int]]
    pass_floor: int
    bought: dict[str, int]
    sold_meanwhile: frozenset[str]


async def take_stock(engine: AsyncEngine, event_id: str, *, asked: Iterable[str] = ()) -> Stock:
    """Everything a gate needs to know."""
    which = {"event_id": event_id}
    async with engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="REPEATABLE READ")
        async with connection.begin():
            # of an event that is on sale for seconds the planner knows nothing, and would join row by row
            await connection.execute(WITHOUT_STATISTICS)
            epoch, version, floor = (await connection.execute(EVENT, which)).one()
            counts = await count_sections(connection, event_id)
            maps = await _maps(connection, event_id)
            ids = list((await connection.execute(LIVE, which)).scalars())
            live = list((await read(connection, ids)).values()) if ids else []
            usage = list(await connection.execute(USAGE, which))
            sold = set((await connection.execute(SOLD, {**which, "ids": sorted(set(asked) - set(ids))})).scalars())
            revoked = [(row.jti, row.expires_at_ms) for row in await connection.execute(REVOKED, which)]
    sections = {s: _section(row, maps.get(s, "")) for s, row in counts.items()}
    tickets, bought = ({row.holder: int(getattr(row, name)) for row in usage} for name in ("tickets", "bought"))
    return Stock(epoch, version, sections, live, tickets, revoked, floor, bought, frozenset(sold))


async def count_sections(connection: AsyncConnection, event_id: str) -> dict[str, RowMapping]:
    """Capacity, available, blocked, held and sold by section, in the order of the layout."""
    rows = (await connection.execute(SECTION_COUNTS, {"event_id": event_id})).mappings()
    return {row["section_id"]: row for row in rows}


async def _maps(connection: AsyncConnection, event_id: str) -> dict[str, str]:
    maps: dict[str, list[str]] = {}
    for shape in await connection.execute(SHAPES, {"event_id": event_id}):
        if shape.kind == "seated":
            maps[shape.section_id] = list(ROW_END.join(["." * shape.seats_per_row] * shape.rows))
    for seat in await connection.execute(GONE_SEATS, {"event_id": event_id}):
        maps[seat.section_id][seat.position] = MARKS[seat.status]
    return {section_id: "".join(marks) for section_id, marks in maps.items()}


def _section(row: RowMapping, marks: str) -> SectionStock:
    held, sold = int(row["held"]), int(row["sold"])
    if not marks:
        return SectionStock(row["capacity"], row["available"], held, sold, row["blocked"])
    available, held, sold, blocked = (marks.count(mark) for mark in ".hsx")
    return SectionStock(row["capacity"], available, held, sold, blocked, marks)


def gate_counts(section_id: str, section: SectionStock) -> dict[str, Any]:
    """As `fill_section` takes it."""
    return {
        "section_id": section_id, "marks": section.marks, "available": section.available, "held": section.held,
        "sold": section.sold, "blocked": section.blocked,
    }  # fmt: skip
