"""What the ledger says at one moment: every section's map and counts, every live reservation, every holder's tickets.

Read in one REPEATABLE READ transaction, so that a basket is never seen half moved. Only looking is done so: taking
under REPEATABLE READ would decide on a snapshot older than its locks.

However large the stock is, each statement reads a bounded part of it: some sections, the places of some reservations,
or a slice of all reservations by their key. A statement reads one table, or two that meet on the whole key of one of
them, so it costs what its part is worth under any plan, also while the planner knows nothing of tables that were filled
seconds ago.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.catalogue.layout import ROW_END
from services.inventory.reconcile.owners import Dispute, disputes
from services.inventory.reservations.repository import Live
from services.inventory.stock.key_ranges import Part, sections_at_once, slices
from shared.postgres.engine import snapshot, statement
from shared.runtime.clock import now_ms
from shared.runtime.group_commit import chunks

MARKS = {"available": ".", "held": "h", "sold": "s", "blocked": "x"}
PLACES_OF_AT_ONCE = 1_000
SECTION_COUNTS = statement(__package__, "section_counts")
EVENT = text("SELECT redis_epoch, version, min_pass_epoch, grace_s FROM inventory.event WHERE event_id = :event_id")
SECTIONS = text(
    "SELECT section_id, kind, rows, seats_per_row, capacity + honoured AS capacity, honoured, seats_remaining, blocked "
    "FROM inventory.section WHERE event_id = :event_id ORDER BY ordinal"
)
GONE_SEATS = text(
    "SELECT section_id, status, array_agg(position) AS positions FROM inventory.seat WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) AND status <> 'available' GROUP BY section_id, status"
)
LIVE = text(
    "SELECT reservation_id, holder, status, reserved_until_ms, fingerprint FROM inventory.reservation "
    "WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')"
)
PLACES = text(
    "WITH asked AS MATERIALIZED (SELECT CAST(:event_id AS text) AS event_id, reservation_id "
    "FROM unnest(CAST(:ids AS text[])) AS a (reservation_id)) "
    "SELECT reservation_id, section_id, position, 1 AS quantity "
    "FROM inventory.reservation_seat JOIN asked USING (event_id, reservation_id) "
    "UNION ALL SELECT reservation_id, section_id, -1, quantity "
    "FROM inventory.reservation_ga JOIN asked USING (event_id, reservation_id)"
)
BOUGHT = statement(__package__, "bought")
SOLD = text(
    "SELECT reservation_id FROM inventory.reservation JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* "
    "FROM unnest(CAST(:ids AS text[])) AS a (reservation_id) OFFSET 0) AS asked USING (event_id, reservation_id) "
    "WHERE status = 'confirmed'"
)
REVOKED = text(
    "SELECT jti, expires_at_ms FROM inventory.revoked_pass WHERE event_id = :event_id "
    "AND expires_at_ms > least(extract(epoch FROM clock_timestamp()) * 1000, CAST(:now_ms AS bigint)) - 3600000"
)


@dataclass(frozen=True, slots=True)
class SectionStock:
    """One section; `marks` is its map, empty for GA. What is kept aside is blocked. `noted` is what its row says is
    available and blocked, which its seats must add up to. `capacity` counts the `honoured`, which were sold beyond it.
    """

    capacity: int
    honoured: int
    available: int
    held: int
    sold: int
    blocked: int
    noted: tuple[int, int]
    marks: str = ""


@dataclass(frozen=True, slots=True)
class StockSnapshot:
    """The ledger of one event at one moment; `version` is the event's. `sold_meanwhile`: those of the asked
    reservations that were bought. `disputed` is empty unless it was checked.
    """

    redis_epoch: int
    version: int
    sections: dict[str, SectionStock]
    live: list[Live]
    usage: dict[str, int]
    revoked: list[tuple[str, int]]
    min_pass_epoch: int
    bought: dict[str, int]
    sold_since: frozenset[str]
    disputed: list[Dispute]


async def read_stock(
    db: AsyncEngine, event_id: str, *, asked: Iterable[str] = (), check: bool = False
) -> StockSnapshot:
    """Everything a gate needs to know; with `check` also where seats and reservations do not agree."""
    which = {"event_id": event_id}
    async with snapshot(db) as connection:
        event = (await connection.execute(EVENT, which)).one()
        rows = list(await connection.execute(SECTIONS, which))
        maps = await _maps(connection, event_id, rows)
        live = await _live(connection, event_id, grace_s=event.grace_s)
        parts = await slices(connection, event_id)
        bought, sold_ga = await _bought(connection, parts)
        disputed = await disputes(connection, event_id, rows, parts) if check else []
        sold = await _sold(connection, event_id, set(asked) - live.keys())
        revoked = await connection.execute(REVOKED, {**which, "now_ms": now_ms()})
        dead = [(row.jti, row.expires_at_ms) for row in revoked]
    held_ga = Counter[str]()
    usage = Counter(bought)
    for one in live.values():
        held_ga.update(dict(one.ga))
        usage[one.holder] += one.quantity
    sections = {
        row.section_id: _seated(row, maps[row.section_id])
        if row.kind == "seated"
        else _ga(row, held_ga[row.section_id], sold_ga[row.section_id])
        for row in rows
    }
    return StockSnapshot(
        event.redis_epoch,
        event.version,
        sections,
        list(live.values()),
        usage,
        dead,
        event.min_pass_epoch,
        bought,
        sold,
        disputed,
    )


async def count_sections(connection: AsyncConnection, event_id: str) -> dict[str, RowMapping]:
    """Capacity, available, blocked, held and sold by section, in the order of the layout."""
    rows = (await connection.execute(SECTION_COUNTS, {"event_id": event_id})).mappings()
    return {row["section_id"]: row for row in rows}


async def _maps(connection: AsyncConnection, event_id: str, rows: list[Row[Any]]) -> dict[str, str]:
    maps: dict[str, str] = {}
    for some in sections_at_once(rows):
        gone: defaultdict[str, list[tuple[str, list[int]]]] = defaultdict(list)
        asked = {"event_id": event_id, "section_ids": [row.section_id for row in some]}
        for row in await connection.execute(GONE_SEATS, asked):
            gone[row.section_id].append((MARKS[row.status], row.positions))
        for row in some:
            marks = list(ROW_END.join(["." * row.seats_per_row] * row.rows))
            for mark, positions in gone[row.section_id]:
                for position in positions:
                    marks[position] = mark
            maps[row.section_id] = "".join(marks)
    return maps


async def _live(connection: AsyncConnection, event_id: str, *, grace_s: int) -> dict[str, Live]:
    live: dict[str, Live] = {}
    async with connection.stream(LIVE, {"event_id": event_id}) as rows:
        async for some in rows.partitions(PLACES_OF_AT_ONCE):
            live |= {row.reservation_id: _hold(row, grace_s) for row in some}
    for ids in chunks(sorted(live), PLACES_OF_AT_ONCE):
        for reservation_id, section_id, position, quantity in await connection.execute(
            PLACES, {"event_id": event_id, "ids": ids}
        ):
            if position >= 0:
                live[reservation_id].seats.append((section_id, position))
            else:
                live[reservation_id].ga.append((section_id, quantity))
    for one in live.values():
        one.seats.sort()
        one.ga.sort()
    return live


def _hold(row: Row[Any], grace_s: int) -> Live:
    return Live(row.reservation_id, row.holder, row.status, row.reserved_until_ms, row.fingerprint, grace_s)


async def _bought(connection: AsyncConnection, parts: list[Part]) -> tuple[dict[str, int], Counter[str]]:
    """Tickets bought by each holder, and GA tickets sold of each section."""
    bought, sold_ga = Counter[str](), Counter[str]()
    for part in parts:
        for holder, section_id, tickets in await connection.execute(BOUGHT, part):
            bought[holder] += tickets
            if section_id is not None:
                sold_ga[section_id] += tickets
    return bought, sold_ga


async def _sold(connection: AsyncConnection, event_id: str, asked: set[str]) -> frozenset[str]:
    sold: set[str] = set()
    for ids in chunks(sorted(asked), PLACES_OF_AT_ONCE):
        sold.update((await connection.execute(SOLD, {"event_id": event_id, "ids": ids})).scalars())
    return frozenset(sold)


def _seated(row: Row[Any], marks: str) -> SectionStock:
    available, held, sold, blocked = (marks.count(mark) for mark in ".hsx")
    noted = row.seats_remaining, row.blocked
    return SectionStock(row.capacity, row.honoured, available, held, sold, blocked, noted, marks)


def _ga(row: Row[Any], held: int, sold: int) -> SectionStock:
    noted = row.seats_remaining, row.blocked
    return SectionStock(row.capacity, row.honoured, row.seats_remaining, held, sold, row.blocked, noted)


def gate_counts(section_id: str, section: SectionStock) -> dict[str, Any]:
    """As `fill_section` takes it."""
    return {
        "section_id": section_id, "marks": section.marks, "available": section.available, "held": section.held,
        "sold": section.sold, "blocked": section.blocked,
    }  # fmt: skip
