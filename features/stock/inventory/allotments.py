"""Allotments: places blocked for the house, a channel, a presale or as a buffer, until they open; and the stock report,
which has places by state, allotment and revenue of each section.

PostgreSQL decides about opening, so it happens once however many processes find it due. An open allotment stays as a
record; its places are on sale.
"""

import math
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import RowMapping, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from features.stock.inventory import tables
from features.stock.inventory.blocking import block, change_stock, find_places, section_ids, unblock
from features.stock.rules import Allotment, AllotmentBody, EventAllotments, Places
from features.stock.schemas import AllotmentChange, ChangeReason, StockChanged, StockCounts, StockReport
from services.inventory.layout.layout import StockSelection
from services.inventory.problems import StockConflict
from services.inventory.state import State, StateDep
from services.inventory.store.change import StockChange
from services.inventory.store.snapshot import count_sections
from services.inventory.store.traits import count_traits
from services.inventory.tables import event as event_table
from shared.concurrency.background import QUIET_S, Quiet
from shared.contracts.event_file import EventFile
from shared.contracts.event_parts.price_types import QUOTA
from shared.contracts.file_parts import part_of
from shared.errors.problems import Problem, UnknownEvent
from shared.postgres.engine import DB_AWAY, snapshot, statement
from shared.redis.client import REDIS_AWAY
from shared.routes import EVENT_ID
from shared.runtime.clock import from_datetime, to_datetime
from shared.runtime.logging import get_logger
from shared.security.auth import AnOperator, Viewer
from shared.web.request import EventIdPath

log = get_logger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
AllotmentIdPath = Annotated[str, Path(pattern=f"^{EVENT_ID}$")]
PLACES = set(Places.model_fields)
OPEN_MAX = 100
OPENED = ChangeReason(reason="opens_at has passed")
WRONG_ALLOTMENTS = statement(__package__, "wrong_allotments")
ALLOTTED = statement(__package__, "allotted_by_section")
REVENUE = statement(__package__, "revenue_by_section")
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


class UnknownAllotment(Problem, status=404):
    """This event has no such allotment."""


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
        await block(change, await find_places(change, wanted), allotment_id=allotment_id)
    else:
        await change.connection.execute(update(tables.allotment).where(*_mine(change, allotment_id)).values(**values))
        if row["places"] != places:
            await _reshape(change, allotment_id, Places.model_validate(row["places"]), wanted)
    change.detail.setdefault("allotments", {})[allotment_id] = values
    return True


async def _reshape(change: StockChange, allotment_id: str, before: Places, wanted: AllotmentBody) -> None:
    """Blocks the places that were added, and puts those on sale that were removed and are still allotted."""
    await change.lock(section_ids(before) | section_ids(wanted))
    old, new = await find_places(change, before), await find_places(change, wanted)
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

    async def store(self, change: StockChange, file: EventFile, *, dry_run: bool) -> bool:
        """Those that the file no longer names stay."""
        wanted = part_of(file, EventAllotments).allotments
        return any([await upsert(change, each.allotment_id, each) for each in wanted])

    async def file_fields(self, connection: AsyncConnection, event: RowMapping) -> dict[str, Any]:
        """Open ones are left out: their places are on sale, and a copy of the event must not block them again."""
        blocked = [row for row in await allotments(connection, event["event_id"]) if row["opened_at"] is None]
        return {"allotments": [{name: row[name] for name in Allotment.model_fields if name in row} for row in blocked]}


async def wrong(connection: AsyncConnection, event_id: str) -> list[str]:
    """Sections with fewer blocked places than allotted ones, and open allotments that still have places."""
    return list((await connection.execute(WRONG_ALLOTMENTS, {"event_id": event_id})).scalars())


async def open_due(state: State) -> Quiet:
    """Opens allotments that are due by Redis' clock; any number of processes may do it. Quiet until the next one is."""
    async with state.db.connect() as connection:
        waiting = list(await connection.execute(NEXT_OPENINGS, {"count_max": OPEN_MAX}))
    for event_id in sorted({row.event_id for row in waiting}):
        try:
            now_ms, _ = await state.redis_stock.list_due(event_id, count_max=1)
        except REDIS_AWAY:
            continue
        due = [row.allotment_id for row in waiting if row.event_id == event_id and row.opens_at_ms <= now_ms]
        for allotment_id in due:
            try:
                await open_one(state, event_id, allotment_id, now_ms)
            except (Problem, *DB_AWAY) as stuck:
                error = type(stuck).__name__
                log.warning("allotment.not_opened", event_id=event_id, allotment=allotment_id, error=error)
    next_ms = waiting[0].opens_at_ms - state.redis_stock.slowest_ms() if waiting else math.inf
    return Quiet(min(QUIET_S, next_ms / 1000))


async def open_one(state: State, event_id: str, allotment_id: str, now_ms: int) -> None:
    """Unless somebody did, or moved its time meanwhile."""
    edit = partial(open_allotment, allotment_id=allotment_id, due_ms=now_ms)
    if (await change_stock(state, event_id, "open", OPENED, edit, by="system")).changed:
        log.info("allotment.opened", event_id=event_id, allotment=allotment_id)


@router.put("/allotments/{allotment_id}", operation_id="put_allotment", summary="Create or change an allotment")
async def put_allotment(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, allotment_id: AllotmentIdPath, wanted: AllotmentChange
) -> StockChanged:
    """Idempotent. The places of an open allotment cannot be changed."""
    edit = partial(upsert, allotment_id=allotment_id, wanted=wanted)
    return await change_stock(state, event_id, "allot", wanted, edit, by=operator.name)


@router.post("/allotments/{allotment_id}/open", operation_id="open_allotment", summary="Open an allotment")
async def post_open(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, allotment_id: AllotmentIdPath, reason: ChangeReason
) -> StockChanged:
    """Puts its places on sale, once; opening an open allotment changes nothing."""
    edit = partial(open_allotment, allotment_id=allotment_id)
    return await change_stock(state, event_id, "open", reason, edit, by=operator.name)


@router.get("/stock", operation_id="read_stock", summary="Get the stock report")
async def get_stock(operator: Viewer, state: StateDep, event_id: EventIdPath) -> StockReport:
    async with snapshot(state.db) as connection:
        return await _report(connection, event_id)


async def _report(connection: AsyncConnection, event_id: str) -> StockReport:
    which = {"event_id": event_id}
    columns = event_table.c
    releases = columns.accessible_release_at, columns.accessible_released_at
    query = select(columns.currency, columns.version, *releases).where(columns.event_id == event_id)
    event = (await connection.execute(query)).one_or_none()
    if event is None:
        raise UnknownEvent
    allotted: dict[str, dict[str, int]] = {}
    for part in await connection.execute(ALLOTTED, which):
        allotted.setdefault(part.section_id, {})[part.allotment_id] = int(part.n)
    revenue = {row.section_id: int(row.earned) for row in await connection.execute(REVENUE, which)}
    by_trait = await count_traits(connection, event_id)
    sections: list[dict[str, Any]] = []
    for section_id, row in (await count_sections(connection, event_id)).items():
        if section_id[0] == QUOTA:
            continue
        by_allotment = allotted.get(section_id, {})
        sections.append({
            "section_id": section_id, "capacity": row["capacity"], "available": row["available"],
            "held": int(row["held"]), "sold": int(row["sold"]), "blocked": row["blocked"] - sum(by_allotment.values()),
            "kept_aside": sum(by_allotment.values()), "kept_aside_by": by_allotment,
            "revenue_minor": revenue.get(section_id, 0), "traits": by_trait.sections.get(section_id, {}),
        })  # fmt: skip
    total = {name: sum(section[name] for section in sections) for name in StockCounts.model_fields}
    return StockReport.model_validate({
        "event_id": event_id, "version": event.version, "currency": event.currency, "sections": sections,
        "total": total, "traits": by_trait.total, "accessible_release_at": event.accessible_release_at,
        "accessible_released_at": event.accessible_released_at, "allotments": await allotments(connection, event_id),
    })  # fmt: skip
