"""Changes of stock by operators: places are blocked and unblocked, a section is resized. Each is one transaction with
one audit log entry; then Redis and the event cache follow.

A seat goes only from available to blocked and back, manually or for an allotment, never both: all of those named or
none; if some are held or sold the problem names them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from fastapi import APIRouter
from sqlalchemy import Row, TextClause, text

from features.stock.rules import NoPlaces
from features.stock.schemas import CapacityChange, ChangeReason, PlacesChange, StockChanged
from services.inventory.catalogue.apply_event_file import resize
from services.inventory.layout.selection import SeatPosition, StockSelection, seat_columns
from services.inventory.problems import StockConflict
from services.inventory.redis_stock.push import push_stock
from services.inventory.state import State, StateDep
from services.inventory.store.change import StockChange
from shared.concurrency.background import wake
from shared.errors.problems import UnknownEvent, VersionMismatch
from shared.postgres.engine import statement
from shared.runtime.logging import get_logger
from shared.security.auth import AnOperator
from shared.web.request import EventIdPath, SectionIdPath

log = get_logger("onsale.inventory")
router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
SEATS_MAX = 5_000  # their sections are locked meanwhile: a few tenths of a second
LOCK_EVENT = text("SELECT version FROM inventory.event WHERE event_id = :event_id FOR UPDATE")

LOCK_SEATS = statement(__package__, "lock_seats")
BLOCK_SEATS = statement(__package__, "block_seats")
BLOCK_PLACES = statement(__package__, "block_places")
ALLOTTED = text(
    "SELECT section_id, sum(allotted) AS allotted FROM inventory.allotment_ga "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[])) GROUP BY section_id"
)
ALLOT = statement(__package__, "allot_ga")
UNALLOT = text(
    "UPDATE inventory.allotment_ga g SET allotted = g.allotted - a.n "
    "FROM unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[])) AS a (section_id, n) "
    "WHERE g.event_id = :event_id AND g.allotment_id = :allotment_id AND g.section_id = a.section_id"
)


async def find_places(change: StockChange, places: NoPlaces) -> StockSelection:
    """Resolves places and locks their sections. Raises `UnknownSection`, `UnknownSeat`, or `StockConflict` for more
    than `SEATS_MAX` seats.
    """
    await change.lock(section_ids(places))
    seats: set[SeatPosition] = set()
    for seat_id in places.seats:
        section_id, row, number = seat_id.split("-")
        seats.add((section_id, change.section(section_id, "seated").position(row, number)))
    for part in places.rows:
        section = change.section(part.section_id, "seated")
        first, last = (section.row_number(row) for row in part.rows)
        if first > last:
            raise StockConflict(f"Row {part.rows[0]} of {part.section_id} is behind row {part.rows[1]}.")
        width = section.seats_per_row + 1
        for row_n in range(first, last + 1):
            seats |= {(part.section_id, row_n * width + n) for n in range(section.seats_per_row)}
        if len(seats) > SEATS_MAX:
            raise StockConflict(f"At most {SEATS_MAX} seats change at a time. Nothing was changed.")
    ga: dict[str, int] = {}
    for ga_places in places.ga:
        change.section(ga_places.section_id, "ga")
        ga[ga_places.section_id] = ga.get(ga_places.section_id, 0) + ga_places.quantity
    return StockSelection(tuple(sorted(seats)), ga)


def section_ids(places: NoPlaces) -> set[str]:
    """The sections that places name."""
    seats = {seat_id.partition("-")[0] for seat_id in places.seats}
    return seats | {part.section_id for part in places.rows} | {part.section_id for part in places.ga}


async def block(change: StockChange, selected: StockSelection, *, allotment_id: str | None = None) -> None:
    """Blocks places, manually or for an allotment. Raises `StockConflict`, which names the seats in conflict.

    Seats that are blocked for the same reason stay as they are.
    """
    seats = await movable(change, selected, allotment_id)
    fresh = [(row.section_id, row.position) for row in seats if row.status == "available"]
    await _set_seats(change, fresh, blocked=True, allotment_id=allotment_id)
    await _set_sections(change, StockSelection(tuple(fresh), selected.ga), sign=1)
    if allotment_id is not None and selected.ga:
        await _change_allotted(change, selected, allotment_id, ALLOT)


async def unblock(change: StockChange, selected: StockSelection, *, allotment_id: str | None = None) -> None:
    """Puts blocked places on sale. Raises `StockConflict`, which names seats that are held, sold, or blocked for
    another reason.
    """
    seats = await movable(change, selected, allotment_id)
    out = [(row.section_id, row.position) for row in seats if row.status == "blocked"]
    if allotment_id is None:
        await _manual_only(change, selected)
    elif selected.ga:
        await _change_allotted(change, selected, allotment_id, UNALLOT)
    await _set_seats(change, out, blocked=False, allotment_id=allotment_id)
    await _set_sections(change, StockSelection(tuple(out), selected.ga), sign=-1)


async def movable(change: StockChange, selected: StockSelection, allotment_id: str | None) -> Sequence[Row[Any]]:
    """The seats, locked; each is available or blocked, and in no other allotment. Raises `StockConflict`, which names
    those in conflict.
    """
    if not selected.seats:
        return []
    values = {"event_id": change.event_id, **seat_columns(selected.seats)}
    rows = (await change.connection.execute(LOCK_SEATS, values)).all()
    conflicts: dict[str, list[SeatPosition]] = {}
    for row in rows:
        if row.status in ("held", "sold"):
            conflicts.setdefault(row.status, []).append((row.section_id, row.position))
        elif row.allotment_id != allotment_id and (row.allotment_id or row.status == "blocked"):
            why = f"allotted to {row.allotment_id}" if row.allotment_id else "blocked manually"
            conflicts.setdefault(why, []).append((row.section_id, row.position))
    if conflicts:
        raise change.conflict(conflicts)
    return rows


async def _manual_only(change: StockChange, selected: StockSelection) -> None:
    """Raises `StockConflict` if fewer places are blocked manually; allotted ones go on sale by opening
    their allotment.
    """
    values = {"event_id": change.event_id, "section_ids": list(selected.ga)}
    rows = await change.connection.execute(ALLOTTED, values)
    allotted = {row.section_id: int(row.allotted) for row in rows}
    for section_id, n in selected.ga.items():
        manual = change.sections[section_id]["blocked"] - allotted.get(section_id, 0)
        if n > manual:
            raise StockConflict(f"{manual} places of {section_id} are blocked manually, not {n}.", blocked=manual)


async def _change_allotted(
    change: StockChange, selected: StockSelection, allotment_id: str, change_ga: TextClause
) -> None:
    columns = {"section_ids": list(selected.ga), "ns": list(selected.ga.values())}
    values = {"event_id": change.event_id, "allotment_id": allotment_id, **columns}
    await change.connection.execute(change_ga, values)


async def _set_seats(
    change: StockChange, seats: list[SeatPosition], *, blocked: bool, allotment_id: str | None
) -> None:
    if seats:
        values = {"event_id": change.event_id, "blocked": blocked, "allotment_id": allotment_id, **seat_columns(seats)}
        moved = (await change.connection.execute(BLOCK_SEATS, values)).rowcount
        assert moved == len(seats), "locked seats changed"
        change.dirty.seats |= set(seats)


async def _set_sections(change: StockChange, selected: StockSelection, *, sign: int) -> None:
    counts = selected.counts()
    if not counts:
        return
    values = {"event_id": change.event_id, "section_ids": list(counts), "ns": [sign * n for n in counts.values()]}
    moved = set((await change.connection.execute(BLOCK_PLACES, values)).scalars())
    for section_id in sorted(counts.keys() - moved):
        left = change.sections[section_id]["seats_remaining"]
        raise StockConflict(
            f"Only {left} places of {section_id} are available, not {counts[section_id]}.", section_id=section_id,
            available=left,
        )  # fmt: skip
    change.dirty.ga |= set(selected.ga)


Edit = Callable[[StockChange], Awaitable[object]]


async def change_stock(
    state: State, event_id: str, action: str, why: ChangeReason, edit: Edit, *, by: str
) -> StockChanged:
    """Runs an operator's change, one at a time. Raises `UnknownEvent`, `VersionMismatch` if the stock is no longer of
    the version that `why` names, or what `edit` raises, and then nothing was changed.
    """
    async with state.db.begin() as connection:
        now: int | None = (await connection.execute(LOCK_EVENT, {"event_id": event_id})).scalar()
        if now is None:
            raise UnknownEvent
        if why.version is not None and why.version != now:
            raise VersionMismatch(version=now)
        change = StockChange(connection, event_id, now)
        await edit(change)
        await change.write(actor=by, action=action, reason=why.reason)
    wake("inventory")  # it may have a time at which it opens
    if change.is_any:
        log.info("stock.changed", event_id=event_id, action=action, by=by, version=change.version)
        await push_stock(state.db, state.redis_stock, event_id, change.dirty)
        await state.catalogue.refresh()
    seats = len(change.dirty.seats)
    return StockChanged(event_id=event_id, changed=change.is_any, version=change.version, seats=seats)


async def move_places(
    state: State, event_id: str, action: Literal["block", "unblock"], places: PlacesChange, *, by: str
) -> StockChanged:
    """Blocks places manually, or puts places on sale that were."""
    move = block if action == "block" else unblock

    async def edit(change: StockChange) -> None:
        await move(change, await find_places(change, places))

    return await change_stock(state, event_id, action, places, edit, by=by)


@router.post("/seats/block", operation_id="block_places", summary="Block seats and GA places")
async def post_block(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, places: PlacesChange
) -> StockChanged:  # fmt: skip
    """All or none: if some are held or sold, the problem names them and nothing is changed."""
    return await move_places(state, event_id, "block", places, by=operator.name)


@router.post("/seats/unblock", operation_id="unblock_places", summary="Unblock seats and GA places")
async def post_unblock(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, places: PlacesChange
) -> StockChanged:  # fmt: skip
    return await move_places(state, event_id, "unblock", places, by=operator.name)


@router.post(
    "/sections/{section_id}/resize", operation_id="resize_section", summary="Change the capacity of a GA section"
)
async def post_resize(
    operator: AnOperator, state: StateDep, event_id: EventIdPath, section_id: SectionIdPath, wanted: CapacityChange
) -> StockChanged:
    """Refused below what is held, sold and blocked."""
    return await change_stock(
        state, event_id, "resize", wanted, lambda change: resize(change, section_id, wanted.capacity), by=operator.name
    )
