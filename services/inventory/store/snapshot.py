"""A snapshot of an event's stock in PostgreSQL: each section's map and counts, live holds, and bought tickets.

Read in one REPEATABLE READ transaction, so a change is never seen half done. Writers do not use that isolation: their
snapshot would be older than their locks.

Each statement reads a bounded part (some sections, the places of some reservations, a key range of the reservations)
from one table, or from two joined on the whole key of one, so its cost is bounded under any plan, even before the
planner has statistics of tables that were just filled.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Row, RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout.layout import ROW_END
from services.inventory.layout.selection import SeatPosition, StockSelection
from services.inventory.store.drift import SeatRow
from services.inventory.store.reservations import LiveHold
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import snapshot, statement
from shared.runtime.clock import now_ms

# How holders are counted: each by name, or in groups of those whose names end alike. A holder's name is a keyed hash
# in base64, so an event has at most 4,096 groups of about the same size however many buy, and two stocks that are
# compared group by group need no list of all buyers.

WHOLE_NAME, ENDING = 2**31 - 1, 2


def group_of(holder: str) -> str:
    """The name of the holder's group."""
    return holder[-ENDING:]


@dataclass(frozen=True, slots=True)
class Holders:
    """Holders are named by the last `characters` of their names; of all groups, or of some."""

    characters: int
    groups: frozenset[str] | None = None

    def name(self, holder: str) -> str | None:
        """The name by which this holder is counted, or None if the group is not wanted."""
        if self.groups is not None and group_of(holder) not in self.groups:
            return None
        return holder[-self.characters :]

    def columns(self) -> dict[str, Any]:
        """The same for a statement: the parameters `characters`, `ending` and `groups`."""
        groups = None if self.groups is None else sorted(self.groups)
        return {"characters": self.characters, "ending": ENDING, "groups": groups}

    def of(self, groups: frozenset[str]) -> "Holders":
        """The same, of these groups only."""
        return replace(self, groups=groups)


EACH_HOLDER, IN_GROUPS = Holders(WHOLE_NAME), Holders(ENDING)


# Bounded parts of an event's stock, so that each statement stays within its time limit however large the event is.

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


# Disputed seats: those whose row and live reservations disagree about the owner, read in bounded parts. A seat names
# its reservation, and a reservation lists its seats. Two statements find every disagreement: live reservations whose
# seat does not name them, and seats that name no live reservation.

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


MARKS = {"available": ".", "held": "h", "sold": "s", "blocked": "x"}
RESERVATIONS_PER_STATEMENT = 1_000
SECTION_COUNTS = statement(__package__, "section_counts")
EVENT = text("SELECT version, min_pass_epoch, grace_s FROM inventory.event WHERE event_id = :event_id")
SECTIONS = text(
    "SELECT section_id, kind, rows, seats_per_row, capacity + overbooked_accepted AS capacity, overbooked_accepted, "
    "seats_remaining, blocked FROM inventory.section WHERE event_id = :event_id ORDER BY ordinal"
)
TAKEN_SEATS = text(
    "SELECT section_id, status, array_agg(position) AS positions FROM inventory.seat WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) AND status <> 'available' GROUP BY section_id, status"
)
LIVE = text(
    "SELECT reservation_id, holder, status, reserved_until_ms, fingerprint, version FROM inventory.reservation "
    "WHERE event_id = :event_id AND status IN ('pending_payment', 'paying')"
)
PLACES = statement(__package__, "live_places")
COUNT_BOUGHT = statement(__package__, "count_bought")
SOLD = text(
    "SELECT reservation_id FROM inventory.reservation JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* "
    "FROM unnest(CAST(:ids AS text[])) AS a (reservation_id) OFFSET 0) AS requested USING (event_id, reservation_id) "
    "WHERE status = 'confirmed'"
)
REVOKED = text(
    "SELECT jti, expires_at_ms FROM inventory.revoked_pass WHERE event_id = :event_id "
    "AND expires_at_ms > least(extract(epoch FROM clock_timestamp()) * 1000, CAST(:now_ms AS bigint)) - 3600000"
)


@dataclass(frozen=True, slots=True)
class SectionStock:
    """One section. `marks` is its map, empty for GA; allotted places count as blocked. `recorded` is what its row says
    is available and blocked. `capacity` includes `overbooked_accepted`.
    """

    capacity: int
    overbooked_accepted: int
    available: int
    held: int
    sold: int
    blocked: int
    recorded: tuple[int, int]
    marks: str = ""


@dataclass(frozen=True, slots=True)
class StockSnapshot:
    """One event at one moment; `version` is the event's. `bought`: how many tickets each holder or group of holders
    bought. `sold_since`: those of the given reservations that are sold. `disputed` is empty unless it was checked, and
    `revoked_passes` if it was.
    """

    version: int
    sections: dict[str, SectionStock]
    live: list[LiveHold]
    bought: Counter[str]
    revoked_passes: list[tuple[str, int]]
    min_pass_epoch: int
    sold_since: frozenset[str]
    disputed: list[Dispute]

    def usage(self) -> Counter[str]:
        """Held and bought tickets by holder."""
        usage = self.bought.copy()
        for hold in self.live:
            usage[hold.holder] += hold.stock.quantity
        return usage


async def read_stock(
    db: AsyncEngine, event_id: str, *, reservation_ids: Iterable[str] = (), check: bool = False,
    holders: Holders = EACH_HOLDER,
) -> StockSnapshot:  # fmt: skip
    """Everything that is also in Redis; with `check` what a comparison needs: the seats whose owner is disputed, and
    not the revoked passes, of which there is one for each purchase of the last hour.
    """
    values = {"event_id": event_id}
    async with snapshot(db) as connection:
        event = (await connection.execute(EVENT, values)).one()
        rows = list(await connection.execute(SECTIONS, values))
        maps = await _maps(connection, event_id, rows)
        live = await _live(connection, event_id, grace_s=event.grace_s)
        ranges = await key_ranges(connection, event_id)
        bought, sold_ga = await _bought(connection, ranges, holders)
        disputed = await disputes(connection, event_id, rows, ranges) if check else []
        sold = await _which_sold(connection, event_id, set(reservation_ids) - live.keys())
        revoked_passes = [] if check else await _revoked_passes(connection, event_id)
    held_ga = Counter[str]()
    for one in live.values():
        held_ga.update(one.stock.ga)
    sections = {
        row.section_id: _section(row, maps.get(row.section_id, ""), held_ga[row.section_id], sold_ga[row.section_id])
        for row in rows
    }
    return StockSnapshot(
        version=event.version, sections=sections, live=list(live.values()), bought=bought,
        revoked_passes=revoked_passes, min_pass_epoch=event.min_pass_epoch, sold_since=sold, disputed=disputed,
    )  # fmt: skip


async def read_maps(db: AsyncEngine, event_id: str) -> dict[str, str]:
    """The map of each seated section, at one moment."""
    async with snapshot(db) as connection:
        rows = list(await connection.execute(SECTIONS, {"event_id": event_id}))
        return await _maps(connection, event_id, rows)


async def count_sections(connection: AsyncConnection, event_id: str) -> dict[str, RowMapping]:
    """Capacity, available, blocked, held and sold by section, in the order of the layout."""
    rows = (await connection.execute(SECTION_COUNTS, {"event_id": event_id})).mappings()
    return {row["section_id"]: row for row in rows}


async def _maps(connection: AsyncConnection, event_id: str, rows: list[Row[Any]]) -> dict[str, str]:
    maps: dict[str, str] = {}
    for some in section_groups(rows):
        taken: defaultdict[str, list[tuple[str, list[int]]]] = defaultdict(list)
        values = {"event_id": event_id, "section_ids": [row.section_id for row in some]}
        for row in await connection.execute(TAKEN_SEATS, values):
            taken[row.section_id].append((MARKS[row.status], row.positions))
        for row in some:
            marks = list(ROW_END.join(["." * row.seats_per_row] * row.rows))
            for mark, positions in taken[row.section_id]:
                for position in positions:
                    marks[position] = mark
            maps[row.section_id] = "".join(marks)
    return maps


async def _live(connection: AsyncConnection, event_id: str, *, grace_s: int) -> dict[str, LiveHold]:
    rows: dict[str, RowMapping] = {}
    async with connection.stream(LIVE, {"event_id": event_id}) as found:
        async for some in found.mappings().partitions(RESERVATIONS_PER_STATEMENT):
            rows |= {row["reservation_id"]: row for row in some}
    live: dict[str, LiveHold] = {}
    for ids in chunks(sorted(rows), RESERVATIONS_PER_STATEMENT):
        seats: defaultdict[str, list[SeatPosition]] = defaultdict(list)
        ga: defaultdict[str, dict[str, int]] = defaultdict(dict)
        places = await connection.execute(PLACES, {"event_id": event_id, "ids": ids})
        for reservation_id, section_id, position, quantity in places:
            if position >= 0:
                seats[reservation_id].append((section_id, position))
            else:
                ga[reservation_id][section_id] = quantity
        for reservation_id in ids:
            stock = StockSelection(tuple(sorted(seats[reservation_id])), dict(sorted(ga[reservation_id].items())))
            live[reservation_id] = LiveHold(**rows[reservation_id], grace_s=grace_s, stock=stock)
    return live


async def _bought(
    connection: AsyncConnection, ranges: list[KeyRange], holders: Holders
) -> tuple[Counter[str], Counter[str]]:
    """Tickets bought by each holder or group, and GA tickets sold of each section."""
    bought, sold_ga = Counter[str](), Counter[str]()
    for key_range in ranges:
        values = {**key_range, **holders.columns()}
        async with connection.stream(COUNT_BOUGHT, values) as found:
            async for some in found.partitions(RESERVATIONS_PER_STATEMENT):
                for holder, section_id, tickets in some:
                    if holder is not None:
                        bought[holder] += tickets
                    if section_id is not None:
                        sold_ga[section_id] += tickets
    return bought, sold_ga


async def _revoked_passes(connection: AsyncConnection, event_id: str) -> list[tuple[str, int]]:
    revoked = await connection.execute(REVOKED, {"event_id": event_id, "now_ms": now_ms()})
    return [(row.jti, row.expires_at_ms) for row in revoked]


async def _which_sold(connection: AsyncConnection, event_id: str, reservation_ids: set[str]) -> frozenset[str]:
    sold: set[str] = set()
    for ids in chunks(sorted(reservation_ids), RESERVATIONS_PER_STATEMENT):
        sold.update((await connection.execute(SOLD, {"event_id": event_id, "ids": ids})).scalars())
    return frozenset(sold)


def _section(row: Row[Any], marks: str, held_ga: int, sold_ga: int) -> SectionStock:
    available, held, sold, blocked = (
        (marks.count(mark) for mark in ".hsx") if marks else (row.seats_remaining, held_ga, sold_ga, row.blocked)
    )
    return SectionStock(
        capacity=row.capacity, overbooked_accepted=row.overbooked_accepted, available=available, held=held, sold=sold,
        blocked=blocked, recorded=(row.seats_remaining, row.blocked), marks=marks,
    )  # fmt: skip


def section_change(named: tuple[str, SectionStock]) -> dict[str, Any]:
    """A section as a whole, for a rebuild of Redis."""
    section_id, section = named
    counts = {name: getattr(section, name) for name in MARKS}
    return {"id": section_id, "counts": counts, **({"map": section.marks} if section.marks else {})}
