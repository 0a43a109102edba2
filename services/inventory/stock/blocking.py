"""Places leave the sale and come back to it, in the ledger: all of them or none, in a change under way.

A seat goes only from available to blocked and back; held and sold ones are named and left alone. What is blocked is
blocked by hand or kept aside for an allotment, never both.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause, text

from services.inventory.problems import StockConflict
from services.inventory.stock.change import SeatPosition, StockChange, StockSelection, seat_columns
from shared.postgres.engine import statement

LOCK_SEATS = statement(__package__, "lock_seats")
ASIDE_SEATS = statement(__package__, "aside_seats")
ASIDE_SECTIONS = statement(__package__, "aside_sections")
KEPT = text(
    "SELECT section_id, sum(kept) AS kept FROM inventory.allotment_ga "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[])) GROUP BY section_id"
)
KEEP = text(
    "INSERT INTO inventory.allotment_ga (event_id, allotment_id, section_id, kept) "
    "SELECT :event_id, :allotment_id, section_id, n "
    "FROM unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[])) AS a (section_id, n) "
    "ON CONFLICT (event_id, allotment_id, section_id) DO UPDATE SET kept = inventory.allotment_ga.kept + excluded.kept"
)
GIVE = text(
    "UPDATE inventory.allotment_ga g SET kept = g.kept - a.n "
    "FROM unnest(CAST(:section_ids AS text[]), CAST(:ns AS int[])) AS a (section_id, n) "
    "WHERE g.event_id = :event_id AND g.allotment_id = :allotment_id AND g.section_id = a.section_id"
)
NAMED_MAX = 20


async def block(change: StockChange, spots: StockSelection, *, allotment_id: str | None = None) -> None:
    """Takes places out of the sale, by hand or for an allotment. Raises `StockConflict`, naming what is in the way.

    A seat that is out for the same reason already is left as it is.
    """
    seats = await _movable(change, spots, allotment_id)
    fresh = [(row.section_id, row.position) for row in seats if row.status == "available"]
    await _seats(change, fresh, blocked=True, allotment_id=allotment_id)
    await _sections(change, StockSelection(tuple(fresh), spots.ga), sign=1)
    if allotment_id is not None and spots.ga:
        await _kept(change, spots, allotment_id, KEEP)


async def unblock(change: StockChange, spots: StockSelection, *, allotment_id: str | None = None) -> None:
    """Puts places on sale again. Raises `StockConflict`, naming what is in the way: what is held or sold, or out
    of the sale for another reason.
    """
    seats = await _movable(change, spots, allotment_id)
    out = [(row.section_id, row.position) for row in seats if row.status == "blocked"]
    if allotment_id is None:
        await _manual_only(change, spots)
    elif spots.ga:
        await _kept(change, spots, allotment_id, GIVE)
    await _seats(change, out, blocked=False, allotment_id=allotment_id)
    await _sections(change, StockSelection(tuple(out), spots.ga), sign=-1)


async def _movable(change: StockChange, spots: StockSelection, allotment_id: str | None) -> Sequence[Row[Any]]:
    """The seats, locked, each of them available or out of the sale for this very reason."""
    if not spots.seats:
        return []
    values = {"event_id": change.event_id, **seat_columns(spots.seats)}
    rows = (await change.connection.execute(LOCK_SEATS, values)).all()
    wrong: dict[str, list[SeatPosition]] = {}
    for row in rows:
        if row.status in ("held", "sold"):
            wrong.setdefault(row.status, []).append((row.section_id, row.position))
        elif row.status == "blocked" and row.allotment_id != allotment_id:
            why = f"kept aside by {row.allotment_id}" if row.allotment_id else "blocked by hand"
            wrong.setdefault(why, []).append((row.section_id, row.position))
    if wrong:
        raise conflict(change, wrong)
    return rows


def conflict(change: StockChange, seats: dict[str, list[SeatPosition]]) -> StockConflict:
    """Names seats by what they are."""
    words = [f"{_shortly(change.seat_ids(some), len(some))} {why}" for why, some in seats.items()]
    named = {why: change.seat_ids(some) for why, some in seats.items()}
    return StockConflict(f"In the way: {'; '.join(words)}. Nothing was changed.", seats=named)


def _shortly(seat_ids: list[str], n: int) -> str:
    more = f" and {n - NAMED_MAX} more are" if n > NAMED_MAX else " are" if n > 1 else " is"
    return ", ".join(seat_ids[:NAMED_MAX]) + more


async def _manual_only(change: StockChange, spots: StockSelection) -> None:
    """By hand only what was blocked by hand comes back; an allotment is opened."""
    values = {"event_id": change.event_id, "section_ids": list(spots.ga)}
    kept = {row.section_id: int(row.kept) for row in await change.connection.execute(KEPT, values)} if spots.ga else {}
    for section_id, n in spots.ga.items():
        by_hand = change.sections[section_id]["blocked"] - kept.get(section_id, 0)
        if n > by_hand:
            raise StockConflict(f"{by_hand} places of {section_id} are blocked by hand, not {n}.", blocked=by_hand)


async def _kept(change: StockChange, spots: StockSelection, allotment_id: str, more_or_less: TextClause) -> None:
    named = {"section_ids": list(spots.ga), "ns": list(spots.ga.values())}
    values = {"event_id": change.event_id, "allotment_id": allotment_id, **named}
    await change.connection.execute(more_or_less, values)


async def _seats(change: StockChange, seats: list[SeatPosition], *, blocked: bool, allotment_id: str | None) -> None:
    if seats:
        values = {"event_id": change.event_id, "blocked": blocked, "allotment_id": allotment_id, **seat_columns(seats)}
        moved = (await change.connection.execute(ASIDE_SEATS, values)).rowcount
        assert moved == len(seats), "locked seats changed"
        change.touched.seats |= set(seats)


async def _sections(change: StockChange, spots: StockSelection, *, sign: int) -> None:
    counts = spots.counts()
    if not counts:
        return
    values = {"event_id": change.event_id, "section_ids": list(counts), "ns": [sign * n for n in counts.values()]}
    moved = set((await change.connection.execute(ASIDE_SECTIONS, values)).scalars())
    for section_id in sorted(counts.keys() - moved):
        left = change.sections[section_id]["seats_remaining"]
        raise StockConflict(
            f"Only {left} places of {section_id} are free, not {counts[section_id]}.", section_id=section_id,
            available=left,
        )  # fmt: skip
    change.touched.ga |= set(spots.ga)
