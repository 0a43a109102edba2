"""Allotments: places blocked for the house, a channel, a presale or as a buffer, until they open.

PostgreSQL decides about opening, so it happens once however many processes find it due. An open allotment stays as a
record; its places are on sale.
"""

import math
from typing import Any

from sqlalchemy import RowMapping, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.layout.layout import EventCache, StockSelection
from services.inventory.problems import StockConflict, UnknownAllotment
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.push import push_stock
from services.inventory.stock.blocking import block, unblock
from services.inventory.store.change import DirtySet, StockChange, section_ids, stock_change
from shared.concurrency.background import QUIET_S, Quiet
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.allotments import Allotment, AllotmentBody, Places
from shared.errors.problems import Problem
from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import from_datetime, to_datetime
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
PLACES = set(Places.model_fields)
OPEN_MAX = 100
NEXT_OPENINGS = text(
    "SELECT event_id, allotment_id, opens_at_ms FROM inventory.allotment "
    "WHERE opened_at IS NULL AND opens_at_ms IS NOT NULL ORDER BY opens_at_ms LIMIT :count_max"
)
MARK_OPENED = text(
    "UPDATE inventory.allotment SET opened_at = clock_timestamp() "
    "WHERE event_id = :event_id AND allotment_id = :allotment_id AND opened_at IS NULL"
)
ALLOTTED_SEATS = text(
    "SELECT section_id, position FROM inventory.seat WHERE event_id = :event_id AND allotment_id = :allotment_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id, position"
)
ALLOTTED_GA = text(
    "SELECT section_id, allotted FROM inventory.allotment_ga "
    "WHERE event_id = :event_id AND allotment_id = :allotment_id AND allotted > 0"
)


async def upsert(change: StockChange, allotment_id: str, wanted: AllotmentBody) -> bool:
    """Creates or changes the allotment; whether that changed anything. Raises `StockConflict`."""
    row = await _row(change, allotment_id)
    places = wanted.model_dump(mode="json", include=PLACES)
    opens_at_ms = from_datetime(wanted.opens_at) if wanted.opens_at else None
    values = {"name": wanted.name, "kind": wanted.kind, "places": places, "opens_at_ms": opens_at_ms}
    if row is not None and all(row[name] == value for name, value in values.items()):
        return False
    if row is not None and row["opened_at"] is not None and row["places"] != places:
        raise StockConflict(f"The allotment {allotment_id} is open and its places are on sale; they cannot change.")
    if row is None:
        await change.connection.execute(
            insert(tables.allotment).values(event_id=change.event_id, allotment_id=allotment_id, **values)
        )
        await block(change, await change.select(wanted), allotment_id=allotment_id)
    else:
        await change.connection.execute(update(tables.allotment).where(*_mine(change, allotment_id)).values(**values))
        if row["places"] != places:
            await _reshape(change, allotment_id, Places.model_validate(row["places"]), wanted)
    change.detail.setdefault("allotments", {})[allotment_id] = values
    return True


async def _reshape(change: StockChange, allotment_id: str, before: Places, wanted: AllotmentBody) -> None:
    """Blocks the places that were added, and puts those on sale that were removed and are still allotted."""
    await change.lock(section_ids(before) | section_ids(wanted))
    old, new = await change.select(before), await change.select(wanted)
    allotted = await _allotted(change, allotment_id, before)
    less = {s: min(allotted.ga.get(s, 0), n - new.ga.get(s, 0)) for s, n in old.ga.items() if n > new.ga.get(s, 0)}
    removed = sorted(set(allotted.seats) - set(new.seats))
    await unblock(
        change, StockSelection(tuple(removed), {s: n for s, n in less.items() if n}), allotment_id=allotment_id
    )
    more = {s: n - old.ga.get(s, 0) for s, n in new.ga.items() if n > old.ga.get(s, 0)}
    added = sorted(set(new.seats) - set(old.seats))
    await block(change, StockSelection(tuple(added), more), allotment_id=allotment_id)


async def open_allotment(change: StockChange, allotment_id: str, *, due_ms: int | None = None) -> bool:
    """Puts the allotted places on sale, once; whether this call did it. With `due_ms`, only if it opens by then.

    Raises `UnknownAllotment`.
    """
    row = await _row(change, allotment_id)
    if row is None:
        raise UnknownAllotment
    if due_ms is not None and (row["opens_at_ms"] is None or row["opens_at_ms"] > due_ms):
        return False
    values = {"event_id": change.event_id, "allotment_id": allotment_id}
    if not (await change.connection.execute(MARK_OPENED, values)).rowcount:
        return False
    places = Places.model_validate(row["places"])
    await change.lock(section_ids(places))
    selected = await _allotted(change, allotment_id, places)
    await unblock(change, selected, allotment_id=allotment_id)
    change.detail |= {"allotment": allotment_id, "opened": selected.counts()}
    return True


async def _allotted(change: StockChange, allotment_id: str, places: Places) -> StockSelection:
    """The places that are still allotted; the caller has locked their sections."""
    values = {"event_id": change.event_id, "allotment_id": allotment_id}
    seated = {"section_ids": sorted(section_ids(places))}
    rows = await change.connection.execute(ALLOTTED_SEATS, values | seated)
    seats = tuple((row.section_id, row.position) for row in rows)
    ga = {row.section_id: row.allotted for row in await change.connection.execute(ALLOTTED_GA, values)}
    return StockSelection(seats, ga)


def _mine(change: StockChange, allotment_id: str) -> tuple[Any, Any]:
    return tables.allotment.c.event_id == change.event_id, tables.allotment.c.allotment_id == allotment_id


async def _row(change: StockChange, allotment_id: str) -> RowMapping | None:
    query = select(tables.allotment).where(*_mine(change, allotment_id))
    return (await change.connection.execute(query)).mappings().one_or_none()


async def allotments(connection: AsyncConnection, event_id: str) -> list[dict[str, Any]]:
    """All allotments of an event."""
    query = select(tables.allotment).where(tables.allotment.c.event_id == event_id)
    rows = (await connection.execute(query.order_by(tables.allotment.c.allotment_id))).mappings()
    return [
        {
            "allotment_id": row["allotment_id"], "name": row["name"], "kind": row["kind"], **row["places"],
            "opens_at": to_datetime(row["opens_at_ms"]) if row["opens_at_ms"] is not None else None,
            "opened_at": row["opened_at"],
        }
        for row in rows
    ]  # fmt: skip


class Allotments:
    """The allotments of event files."""

    async def apply(self, change: StockChange, file: EventFile, *, dry_run: bool) -> bool:
        return any([await upsert(change, each.allotment_id, each) for each in file.allotments])

    async def read(self, connection: AsyncConnection, event: RowMapping) -> dict[str, Any]:
        """Open ones are left out: their places are on sale, and a copy of the event must not block them again."""
        blocked = [row for row in await allotments(connection, event["event_id"]) if row["opened_at"] is None]
        return {"allotments": [{name: row[name] for name in Allotment.model_fields if name in row} for row in blocked]}


class AllotmentOpener:
    """Opens allotments that are due by Redis' clock. Any number of processes may run it."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue

    async def run_once(self) -> Quiet:
        """Opens what is due. Quiet until the next opening."""
        async with self._db.connect() as connection:
            waiting = list(await connection.execute(NEXT_OPENINGS, {"count_max": OPEN_MAX}))
        for event_id in sorted({row.event_id for row in waiting}):
            try:
                now_ms, _ = await self._redis_stock.list_due(event_id, count_max=1)
            except REDIS_AWAY:
                continue
            due = [row.allotment_id for row in waiting if row.event_id == event_id and row.opens_at_ms <= now_ms]
            for allotment_id in due:
                try:
                    await self._open(event_id, allotment_id, now_ms)
                except (Problem, *DB_AWAY) as stuck:
                    log.warning(
                        "allotment.not_opened", event_id=event_id, allotment=allotment_id, error=type(stuck).__name__
                    )
        next_ms = waiting[0].opens_at_ms - self._redis_stock.slowest_ms() if waiting else math.inf
        return Quiet(min(QUIET_S, next_ms / 1000))

    async def _open(self, event_id: str, allotment_id: str, now_ms: int) -> None:
        dirty = DirtySet()
        reason = "opens_at has passed"
        async with stock_change(self._db, event_id, actor="system", action="open", reason=reason) as change:
            if await open_allotment(change, allotment_id, due_ms=now_ms):
                dirty = change.dirty
        if dirty:
            log.info("allotment.opened", event_id=event_id, allotment=allotment_id)
            await push_stock(self._db, self._redis_stock, event_id, dirty)
