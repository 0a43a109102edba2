"""Block and unblock places in PostgreSQL, manually or for an allotment: all of them or none.

A seat goes only from available to blocked and back; if some are held or sold the problem names them. A place is blocked
either manually or for one allotment, never both.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause, text

from services.inventory.layout.layout import SeatPosition, StockSelection, seat_columns
from services.inventory.problems import StockConflict
from services.inventory.store.change import StockChange
from shared.contracts.event_parts.allotments import Places
from shared.postgres.engine import statement

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
NAMED_MAX = 20


async def block_places(change: StockChange, places: Places) -> None:
    """Blocks places manually."""
    await block(change, await change.select(places))


async def unblock_places(change: StockChange, places: Places) -> None:
    """Puts places that were blocked manually on sale."""
    await unblock(change, await change.select(places))


async def block(change: StockChange, selected: StockSelection, *, allotment_id: str | None = None) -> None:
    """Blocks places, manually or for an allotment. Raises `StockConflict`, which names the seats in conflict.

    Seats that are blocked for the same reason stay as they are.
    """
    seats = await _movable(change, selected, allotment_id)
    fresh = [(row.section_id, row.position) for row in seats if row.status == "available"]
    await _set_seats(change, fresh, blocked=True, allotment_id=allotment_id)
    await _set_sections(change, StockSelection(tuple(fresh), selected.ga), sign=1)
    if allotment_id is not None and selected.ga:
        await _change_allotted(change, selected, allotment_id, ALLOT)


async def unblock(change: StockChange, selected: StockSelection, *, allotment_id: str | None = None) -> None:
    """Puts blocked places on sale. Raises `StockConflict`, which names seats that are held, sold, or blocked for
    another reason.
    """
    seats = await _movable(change, selected, allotment_id)
    out = [(row.section_id, row.position) for row in seats if row.status == "blocked"]
    if allotment_id is None:
        await _manual_only(change, selected)
    elif selected.ga:
        await _change_allotted(change, selected, allotment_id, UNALLOT)
    await _set_seats(change, out, blocked=False, allotment_id=allotment_id)
    await _set_sections(change, StockSelection(tuple(out), selected.ga), sign=-1)


async def _movable(change: StockChange, selected: StockSelection, allotment_id: str | None) -> Sequence[Row[Any]]:
    """The seats, locked; each is available, or blocked for the same reason."""
    if not selected.seats:
        return []
    values = {"event_id": change.event_id, **seat_columns(selected.seats)}
    rows = (await change.connection.execute(LOCK_SEATS, values)).all()
    conflicts: dict[str, list[SeatPosition]] = {}
    for row in rows:
        if row.status in ("held", "sold"):
            conflicts.setdefault(row.status, []).append((row.section_id, row.position))
        elif row.status == "blocked" and row.allotment_id != allotment_id:
            why = f"allotted to {row.allotment_id}" if row.allotment_id else "blocked manually"
            conflicts.setdefault(why, []).append((row.section_id, row.position))
    if conflicts:
        raise conflict(change, conflicts)
    return rows


def conflict(change: StockChange, seats: dict[str, list[SeatPosition]]) -> StockConflict:
    """A problem that names seats by why they cannot change."""
    reasons = [f"{_abbreviated(change.seat_ids(some), len(some))} {why}" for why, some in seats.items()]
    by_reason = {why: change.seat_ids(some) for why, some in seats.items()}
    return StockConflict(f"These seats cannot change: {'; '.join(reasons)}. Nothing was changed.", seats=by_reason)


def _abbreviated(seat_ids: list[str], n: int) -> str:
    more = f" and {n - NAMED_MAX} more are" if n > NAMED_MAX else " are" if n > 1 else " is"
    return ", ".join(seat_ids[:NAMED_MAX]) + more


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
