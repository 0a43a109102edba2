"""Stock by code: allotments that are sold to fans who name one of their codes or came by one of their lanes, until they
open to all.

Their seats are available and marked with the allotment, which the statement that writes a hold compares, so a process
that knows an older allotment sells none. Their general-admission places are a pool: a section of its own in the stock,
split from the section, whose counters decide as those of every section do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from features.stock.inventory import tables
from features.stock.inventory.blocking import movable
from services.inventory.layout.layout import Layout
from services.inventory.layout.price_types import Fan
from services.inventory.layout.selection import StockSelection, pool_id, seat_columns, section_of
from services.inventory.problems import StockConflict
from services.inventory.store.change import StockChange
from shared.contracts.event_parts.traits import Run, joined
from shared.contracts.fields import code_key
from shared.postgres.engine import statement

ALLOT_SEATS = statement(__package__, "allot_seats")
ADD_POOLS, MOVE_PLACES = statement(__package__, "add_pools"), statement(__package__, "move_places")
FREE_SEATS = text(
    "UPDATE inventory.seat SET allotment_id = NULL WHERE event_id = :event_id AND allotment_id = :allotment_id "
    "RETURNING section_id, status"
)
SEATS = text(
    "SELECT event_id, allotment_id, section_id, array_agg(position ORDER BY position) AS positions FROM inventory.seat "
    "WHERE event_id = ANY(CAST(:event_ids AS text[])) AND allotment_id IS NOT NULL GROUP BY 1, 2, 3"
)
LEFT_IN_OPEN = text(
    "SELECT DISTINCT s.event_id FROM inventory.allotment a JOIN inventory.section s "
    "ON s.event_id = a.event_id AND split_part(s.section_id, '~', 2) = a.allotment_id AND s.kind = 'ga' "
    "WHERE s.blocked > 0 OR (a.opened_at IS NOT NULL AND s.seats_remaining > 0)"
)


@dataclass(frozen=True, slots=True)
class ByCode:
    """An allotment's seats, as runs by section, and the pools of its general-admission places, by section; and who may
    buy them.
    """

    name: str
    places: Mapping[str, Sequence[Run]]
    pools: Mapping[str, str]
    lanes: frozenset[int]
    codes: frozenset[str]

    def is_open_to(self, fan: Fan) -> bool:
        return fan.lane in self.lanes or (fan.code is not None and code_key(fan.code) in self.codes)


@dataclass(frozen=True, slots=True)
class StockByCode:
    """What an event's layout has of allotments."""

    exclusive: tuple[ByCode, ...]

    def card(self, layout: Layout) -> dict[str, Any]:
        return {}

    def details(self, layout: Layout) -> dict[str, Any]:
        return {
            "code_opens_places": any(each.codes for each in self.exclusive),
            "lane_opens_places": any(each.lanes for each in self.exclusive),
        }


async def read_stock_by_code(connection: AsyncConnection, events: Sequence[RowMapping]) -> dict[str, StockByCode]:
    """The allotments that are sold by code or lane, by event."""
    ids = [event["event_id"] for event in events]
    one = tables.allotment.c
    waiting = one.event_id.in_(ids), one.opened_at.is_(None), (one.codes != []) | (one.lanes != [])
    rows = (await connection.execute(select(tables.allotment).where(*waiting).order_by(one.allotment_id))).all()
    seats: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for seat in await connection.execute(SEATS, {"event_ids": ids}) if rows else ():
        runs = joined((position, position) for position in seat.positions)
        seats.setdefault((seat.event_id, seat.allotment_id), {})[seat.section_id] = runs
    found: dict[str, list[ByCode]] = {event_id: [] for event_id in ids}
    for row in rows:
        key = row.event_id, row.allotment_id
        pools = {ga["section_id"]: pool_id(ga["section_id"], row.allotment_id) for ga in row.places["ga"]}
        codes = frozenset(map(code_key, row.codes))
        found[row.event_id].append(
            ByCode(row.allotment_id, seats.get(key, {}), pools, frozenset(row.lanes), codes)
        )  # fmt: skip
    return {event_id: StockByCode(tuple(own)) for event_id, own in found.items()}


async def put_in(change: StockChange, selected: StockSelection, allotment_id: str) -> None:
    """Gives places of general sale to the allotment. Raises `StockConflict`, which names seats that are held, sold,
    blocked, or in another allotment.
    """
    rows = await movable(change, selected, allotment_id)
    fresh = [(row.section_id, row.position) for row in rows if row.allotment_id is None]
    await _allot(change, fresh, None, allotment_id)
    if selected.ga:
        values = {"event_id": change.event_id, "allotment_id": allotment_id, "section_ids": list(selected.ga)}
        await change.connection.execute(ADD_POOLS, values)
        await change.lock(pool_id(section_id, allotment_id) for section_id in selected.ga)
    await _move(change, selected.ga, allotment_id, sign=1)


async def take_out(change: StockChange, selected: StockSelection, allotment_id: str) -> None:
    """Gives places of the allotment to general sale. Raises `StockConflict`, which names seats that are held or sold,
    or in another allotment.
    """
    rows = await movable(change, selected, allotment_id)
    own = [(row.section_id, row.position) for row in rows if row.allotment_id == allotment_id]
    await _allot(change, own, allotment_id, None)
    await _move(change, selected.ga, allotment_id, sign=-1)


async def _allot(
    change: StockChange, seats: Sequence[tuple[str, int]], before: str | None, after: str | None
) -> None:  # fmt: skip
    if seats:
        values = {"event_id": change.event_id, "from": before, "to": after, **seat_columns(seats)}
        moved = (await change.connection.execute(ALLOT_SEATS, values)).rowcount
        assert moved == len(seats), "locked seats changed"


async def _move(change: StockChange, ga: Mapping[str, int], allotment_id: str, *, sign: int) -> None:
    """Moves available places from each section to its pool; with the sign -1 back."""
    more: dict[str, int] = {}
    for section_id, n in ga.items():
        more |= {section_id: -sign * n, pool_id(section_id, allotment_id): sign * n}
    await move_places(change, more)


async def move_places(change: StockChange, more: Mapping[str, int], blocked: Mapping[str, int] | None = None) -> None:
    """Gives so many more available, and blocked, places to these sections and pools, which are locked. Raises
    `StockConflict` if one has too few.
    """
    ids, out = sorted({*more, *(blocked or {})}), blocked or {}
    if not ids:
        return
    columns = {"ns": [more.get(each, 0) for each in ids], "blocked": [out.get(each, 0) for each in ids]}
    values = {"event_id": change.event_id, "section_ids": ids, **columns}
    moved = set((await change.connection.execute(MOVE_PLACES, values)).scalars())
    for each in ids:
        row = change.sections[each]
        if each not in moved:
            raise _too_few(each, row["seats_remaining"], -more.get(each, 0))
        row["capacity"] += more.get(each, 0) + out.get(each, 0)
        row["seats_remaining"] += more.get(each, 0)
        row["blocked"] += out.get(each, 0)
    change.dirty.ga |= set(ids)


def _too_few(counted_as: str, left: int, wanted: int) -> StockConflict:
    section_id, _, name = counted_as.partition("~")
    where = f"{section_id} that {name} has" if name else section_id
    detail = f"Only {left} places of {where} are available, not {wanted}. Nothing was changed."
    return StockConflict(detail, section_id=section_id, available=left)


async def open_to_all(change: StockChange, allotment_id: str, sections: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Puts the allotment's places on sale to everybody: how many of its tickets were sold before, and how many places
    more everybody can buy by section. The caller has locked these sections, which are those of the allotment.
    """
    values = {"event_id": change.event_id, "allotment_id": allotment_id}
    freed, sold = dict[str, int](), 0
    for row in await change.connection.execute(FREE_SEATS, values):
        sold += row.status == "sold"
        if row.status == "available":
            freed[row.section_id] = freed.get(row.section_id, 0) + 1
    pools = {s: pool for s in sections if (pool := pool_id(s, allotment_id)) in change.sections}
    sold += await _sold_in(change, list(pools.values()))
    freed |= await _merge(change, pools.values())
    return sold, freed


SOLD_IN = text(
    "SELECT coalesce(sum(g.quantity), 0) FROM inventory.reservation_ga g "
    "JOIN inventory.reservation r USING (event_id, reservation_id) "
    "WHERE g.event_id = :event_id AND g.section_id = ANY(CAST(:pools AS text[])) AND r.status = 'confirmed'"
)


async def _sold_in(change: StockChange, pools: Sequence[str]) -> int:
    values = {"event_id": change.event_id, "pools": pools}
    return int(await change.connection.scalar(SOLD_IN, values) or 0) if pools else 0


async def _merge(change: StockChange, pools: Any) -> dict[str, int]:
    """Gives what these locked pools have available to their sections; how many by section."""
    more, freed = dict[str, int](), dict[str, int]()
    for pool in pools:
        if n := change.sections[pool]["seats_remaining"]:
            section_id = section_of(pool)
            more[pool] = -n
            more[section_id] = more.get(section_id, 0) + n
            freed[section_id] = more[section_id]
    await move_places(change, more)
    return freed


async def merge_what_is_left(change: StockChange) -> None:
    """What came back to the pools of open allotments goes to their sections; so does what was blocked when it was
    returned.
    """
    query = select(tables.allotment.c.allotment_id).where(
        tables.allotment.c.event_id == change.event_id, tables.allotment.c.opened_at.is_not(None)
    )
    opened = set((await change.connection.execute(query)).scalars())
    pools = [each for each in change.sections if "~" in each[1:]]
    freed = await _merge(change, [each for each in pools if each.partition("~")[2] in opened])
    blocked: dict[str, int] = {}
    for pool in pools:
        if n := change.sections[pool]["blocked"]:
            blocked[pool] = -n
            blocked[section_of(pool)] = blocked.get(section_of(pool), 0) + n
    await move_places(change, {}, blocked)
    if freed or blocked:
        change.detail |= {"came_back": freed}
