"""Allotments: places kept aside for the house, a channel, a presale or as a buffer, until they open; moves between them
and general sale; and the stock report, which has places by state, allotment and revenue of each section.

PostgreSQL decides about opening, so it happens once however many processes find it due. An open allotment stays as a
record; its places are on sale.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import RowMapping, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from features.stock.inventory import by_code as stock_by_code
from features.stock.inventory import tables
from features.stock.inventory.blocking import block, change_stock, find_places, section_ids, unblock
from features.stock.rules import (
    RANGES_MAX,
    SEATS_NAMED_MAX,
    Allotment,
    AllotmentBody,
    EventAllotments,
    NoPlaces,
)
from features.stock.schemas import AllotmentChange, ChangeReason, StockChanged, StockCounts, StockMove, StockReport
from services.inventory.layout.selection import POOL, SeatPosition, StockSelection, pool_id, section_of
from services.inventory.problems import StockConflict
from services.inventory.state import State, StateDep
from services.inventory.store.change import StockChange
from services.inventory.store.snapshot import count_sections
from services.inventory.store.traits import count_traits
from services.inventory.tables import event as event_table
from services.inventory.tables import section as section_table
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
PLACES = set(NoPlaces.model_fields)
OPEN_MAX = 100
NAMES = tuple(StockCounts.model_fields)
OPENED = ChangeReason(reason="opens_at has passed")
CAME_BACK = ChangeReason(reason="tickets of an open allotment came back")
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
    values = {
        "name": wanted.name, "kind": wanted.kind, "places": places, "opens_at_ms": opens_at_ms,
        "codes": wanted.codes, "lanes": wanted.lanes,
    }  # fmt: skip
    if row is not None and all(row[name] == value for name, value in values.items()):
        return False
    if row is not None and row["opened_at"] is not None and row["places"] != places:
        raise StockConflict(f"The allotment {allotment_id} is open and its places are on sale; they cannot change.")
    if row is None:
        await change.connection.execute(
            insert(tables.allotment).values(event_id=change.event_id, allotment_id=allotment_id, **values)
        )
        await _put_in(change, await find_places(change, wanted), allotment_id, by_code=wanted.is_by_code)
    else:
        await change.connection.execute(update(tables.allotment).where(*_mine(change, allotment_id)).values(**values))
        if row["opened_at"] is None and (row["places"] != places or _is_by_code(row) != wanted.is_by_code):
            await _reshape(change, row, wanted)
    change.detail.setdefault("allotments", {})[allotment_id] = values
    return True


async def _reshape(change: StockChange, row: RowMapping, wanted: AllotmentBody) -> None:
    """Takes the places that were added from general sale, and gives those back that were removed and are still
    allotted; all of them, if they were blocked and are to be sold by code, or the other way.
    """
    before, allotment_id, was_by_code = NoPlaces.model_validate(row["places"]), row["allotment_id"], _is_by_code(row)
    await change.lock(section_ids(before) | section_ids(wanted))
    old, new = await find_places(change, before), await find_places(change, wanted)
    allotted = await _allotted(change, row)
    if was_by_code != wanted.is_by_code:
        await _take_out(change, allotted, allotment_id, by_code=was_by_code)
        await _put_in(change, new, allotment_id, by_code=wanted.is_by_code)
        return
    less = {s: min(allotted.ga.get(s, 0), n - new.ga.get(s, 0)) for s, n in old.ga.items() if n > new.ga.get(s, 0)}
    removed = sorted(set(allotted.seats) - set(new.seats))
    out = StockSelection(tuple(removed), {s: n for s, n in less.items() if n})
    await _take_out(change, out, allotment_id, by_code=was_by_code)
    more = {s: n - old.ga.get(s, 0) for s, n in new.ga.items() if n > old.ga.get(s, 0)}
    added = sorted(set(new.seats) - set(old.seats))
    await _put_in(change, StockSelection(tuple(added), more), allotment_id, by_code=was_by_code)


def _is_by_code(row: RowMapping) -> bool:
    return bool(row["codes"] or row["lanes"])


async def _put_in(change: StockChange, selected: StockSelection, allotment_id: str, *, by_code: bool) -> None:
    """Takes places from general sale for an allotment."""
    if by_code:
        await stock_by_code.put_in(change, selected, allotment_id)
    else:
        await block(change, selected, allotment_id=allotment_id)


async def _take_out(change: StockChange, selected: StockSelection, allotment_id: str, *, by_code: bool) -> None:
    """Gives places of an allotment to general sale."""
    if by_code:
        await stock_by_code.take_out(change, selected, allotment_id)
    else:
        await unblock(change, selected, allotment_id=allotment_id)


# -- moves -------------------------------------------------------------------------------------------------------------


async def move(change: StockChange, wanted: StockMove) -> None:
    """Moves places from one allotment to another, or from or to general sale. Raises `UnknownAllotment`, or
    `StockConflict`, which names what is held or sold, or is not where it is to be taken from.
    """
    source, target = [await _waiting(change, each) for each in (wanted.from_allotment, wanted.to_allotment)]
    described = [NoPlaces.model_validate(row["places"]) for row in (source, target) if row]
    await change.lock(section_ids(wanted).union(*map(section_ids, described)))
    places = await find_places(change, wanted)
    if source:
        await _require_in(change, places, source)
        await _take_out(change, places, source["allotment_id"], by_code=_is_by_code(source))
        await _describe(change, source, places, sign=-1)
    if target:
        await _put_in(change, places, target["allotment_id"], by_code=_is_by_code(target))
        await _describe(change, target, places, sign=1)
    way = {"from": wanted.from_allotment, "to": wanted.to_allotment, "tickets": places.counts()}
    change.detail |= {"moved": way | {"seats": change.seat_ids(places.seats)}}


async def _waiting(change: StockChange, allotment_id: str | None) -> RowMapping | None:
    """An allotment that is not open; None is general sale."""
    if allotment_id is None:
        return None
    row = await _row(change, allotment_id)
    if row is None:
        raise UnknownAllotment(f"There is no allotment {allotment_id}.")
    if row["opened_at"] is not None:
        raise StockConflict(f"The allotment {allotment_id} is open: its places are in general sale.")
    return row


async def _require_in(change: StockChange, places: StockSelection, source: RowMapping) -> None:
    """Raises `StockConflict` for places that the allotment has not."""
    own = await _allotted(change, source)
    if elsewhere := sorted(set(places.seats) - set(own.seats)):
        raise change.conflict({f"not in {source['allotment_id']}": elsewhere})
    for section_id, n in places.ga.items():
        if n > (left := own.ga.get(section_id, 0)):
            detail = f"{source['allotment_id']} has only {left} places of {section_id}, not {n}. Nothing was changed."
            raise StockConflict(detail, section_id=section_id, available=left)


async def _describe(change: StockChange, row: RowMapping, places: StockSelection, *, sign: int) -> None:
    """Writes the places of an allotment anew, with these more or less."""
    before = await find_places(change, NoPlaces.model_validate(row["places"]))
    seats = set(before.seats) | set(places.seats) if sign > 0 else set(before.seats) - set(places.seats)
    ga = {s: before.ga.get(s, 0) + sign * places.ga.get(s, 0) for s in sorted({*before.ga, *places.ga})}
    named, rows = _named(change, seats)
    if len(named) > SEATS_NAMED_MAX or len(rows) > RANGES_MAX:
        raise StockConflict(
            f"{row['allotment_id']} would have too many single places: at most {SEATS_NAMED_MAX} seats and "
            f"{RANGES_MAX} runs of rows can be named. Move whole rows, or use another allotment."
        )
    parts = [{"section_id": s, "quantity": n} for s, n in ga.items() if n > 0]
    values = {"places": {"seats": named, "rows": rows, "ga": parts}}
    mine = update(tables.allotment).where(*_mine(change, row["allotment_id"]))
    await change.connection.execute(mine.values(**values))


def _named(change: StockChange, seats: set[SeatPosition]) -> tuple[list[str], list[dict[str, Any]]]:
    """Seats as they are described: whole rows as rows, the others one by one."""
    by_row: dict[tuple[str, int], list[int]] = {}
    for section_id, position in sorted(seats):
        row = position // (change.sections[section_id]["seats_per_row"] + 1)
        by_row.setdefault((section_id, row), []).append(position)
    whole = [at for at, own in by_row.items() if len(own) == change.sections[at[0]]["seats_per_row"]]
    named = [(at[0], position) for at, own in by_row.items() if at not in set(whole) for position in own]
    sections = {section_id: change.section(section_id) for section_id, _ in by_row}
    rows: list[dict[str, Any]] = []
    last: tuple[str, int] | None = None
    for section_id, row in whole:
        label = sections[section_id].labels.rows[row]
        if last == (section_id, row - 1):
            rows[-1]["rows"][1] = label
        else:
            rows.append({"section_id": section_id, "rows": [label, label]})
        last = section_id, row
    return [sections[s].seat_id(position) for s, position in named], rows


# -- opening -----------------------------------------------------------------------------------------------------------


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
    places = NoPlaces.model_validate(row["places"])
    await change.lock(section_ids(places))
    if _is_by_code(row):
        sold, opened = await stock_by_code.open_to_all(change, allotment_id, sorted(section_ids(places)))
        counted = update(tables.allotment).where(*_mine(change, allotment_id)).values(sold_before=sold)
        await change.connection.execute(counted)
    else:
        selected = await _allotted(change, row)
        await unblock(change, selected, allotment_id=allotment_id)
        opened = selected.counts()
    change.detail |= {"allotment": allotment_id, "opened": opened}
    return True


async def _allotted(change: StockChange, row: RowMapping) -> StockSelection:
    """The places that are still allotted; the caller has locked their sections."""
    allotment_id, sections = row["allotment_id"], sorted(section_ids(NoPlaces.model_validate(row["places"])))
    values = {"event_id": change.event_id, "allotment_id": allotment_id}
    rows = await change.connection.execute(ALLOTTED_SEATS, values | {"section_ids": sections})
    seats = tuple((row.section_id, row.position) for row in rows)
    if _is_by_code(row):
        pools = {s: change.sections.get(pool_id(s, allotment_id)) for s in sections}
        return StockSelection(seats, {s: pool["capacity"] for s, pool in pools.items() if pool})
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
            "opened_at": row["opened_at"], "codes": row["codes"], "lanes": row["lanes"],
            "sold_before": row["sold_before"],
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
        waiting = [row for row in await allotments(connection, event["event_id"]) if row["opened_at"] is None]
        return {"allotments": [{name: row[name] for name in Allotment.model_fields if name in row} for row in waiting]}


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
    async with state.db.connect() as connection:
        left = list((await connection.execute(stock_by_code.LEFT_IN_OPEN)).scalars())
    for event_id in left:
        await _merge_what_is_left(state, event_id)
    next_ms = waiting[0].opens_at_ms - state.redis_stock.slowest_ms() if waiting else math.inf
    return Quiet(min(QUIET_S, next_ms / 1000))


async def open_one(state: State, event_id: str, allotment_id: str, now_ms: int) -> None:
    """Unless somebody did, or moved its time meanwhile."""
    edit = partial(open_allotment, allotment_id=allotment_id, due_ms=now_ms)
    if (await change_stock(state, event_id, "open", OPENED, edit, by="system")).changed:
        log.info("allotment.opened", event_id=event_id, allotment=allotment_id)


async def _merge_what_is_left(state: State, event_id: str) -> None:
    async def edit(change: StockChange) -> None:
        query = select(section_table.c.section_id).where(section_table.c.event_id == event_id)
        await change.lock((await change.connection.execute(query)).scalars())
        await stock_by_code.merge_what_is_left(change)

    await change_stock(state, event_id, "open", CAME_BACK, edit, by="system")


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


@router.post("/stock/move", operation_id="move_stock", summary="Move places between allotments and general sale")
async def post_move(operator: AnOperator, state: StateDep, event_id: EventIdPath, wanted: StockMove) -> StockChanged:
    """All or none: if some are held, sold or elsewhere, the problem names them and nothing is changed."""
    edit = partial(move, wanted=wanted)
    return await change_stock(state, event_id, "move", wanted, edit, by=operator.name)


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
    allotted: dict[str, dict[str, dict[str, int]]] = {}  # by section and allotment: places by state
    by_allotment: dict[str, Counter[str]] = defaultdict(Counter)
    for part in await connection.execute(ALLOTTED, which):
        allotted.setdefault(part.section_id, {}).setdefault(part.allotment_id, {})[part.status] = int(part.n)
        by_allotment[part.allotment_id][part.status] += int(part.n)
    revenue = Counter[str]()
    for earned in await connection.execute(REVENUE, which):
        revenue[section_of(earned.section_id)] += int(earned.earned)
    by_trait = await count_traits(connection, event_id)
    sections: dict[str, dict[str, Any]] = {}
    for counted_as, row in (await count_sections(connection, event_id)).items():
        if counted_as[0] == QUOTA:
            continue
        section_id, _, pool = counted_as.partition(POOL)
        counts = {name: int(row[name]) for name in ("capacity", "available", "held", "sold", "blocked")}
        own = {name: places.get("kept_aside", 0) for name, places in allotted.get(section_id, {}).items()}
        if pool:
            by_allotment[pool].update({name: counts[name] for name in ("available", "held", "sold")})
            counts["reserved"], counts["available"] = counts["available"], 0
        else:
            apart = sum(places.get("available", 0) for places in allotted.get(section_id, {}).values())
            counts |= {"reserved": apart, "available": counts["available"] - apart, "kept_aside": sum(own.values())}
            counts["blocked"] -= counts["kept_aside"]
        before = sections.setdefault(
            section_id, {"section_id": section_id, "kept_aside_by": {}} | dict.fromkeys(NAMES, 0)
        )
        before |= {name: before[name] + counts.get(name, 0) for name in NAMES}
        if not pool:
            before |= {"kept_aside_by": {k: n for k, n in own.items() if n}, "revenue_minor": revenue[section_id]}
            before["traits"] = by_trait.sections.get(section_id, {})
    total = {name: sum(section[name] for section in sections.values()) for name in NAMES}
    found = await allotments(connection, event_id)
    return StockReport.model_validate({
        "event_id": event_id, "version": event.version, "currency": event.currency,
        "sections": list(sections.values()), "total": total, "traits": by_trait.total,
        "accessible_release_at": event.accessible_release_at, "accessible_released_at": event.accessible_released_at,
        "allotments": [one | _counts(one, by_allotment[one["allotment_id"]]) for one in found],
    })  # fmt: skip


def _counts(allotment: Mapping[str, Any], places: Mapping[str, int]) -> dict[str, int]:
    """Places of an allotment by state."""
    if allotment["opened_at"] is not None:
        return {"kept_aside": 0, "available": 0, "held": 0, "sold": allotment["sold_before"]}
    return {name: places.get(name, 0) for name in ("kept_aside", "available", "held", "sold")}
