"""An event file into the ledger: the same file again changes nothing, and nobody loses a place they hold or bought.

It is done alone, like a rebuild. Where seats are made or unmade the gate's epoch rises and the gate is filled anew; the
size of a GA section, prices, limits and allotments change under a gate that goes on selling.

Seats made and unmade by an event file: only where nobody holds, bought or was promised one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.catalogue.resize import resize
from services.inventory.problems import StockConflict
from services.inventory.redis_stock.rebuild import EXCLUSIVE_LOCK
from services.inventory.stock.allotments import upsert
from services.inventory.stock.blocking import conflict
from services.inventory.stock.change import DirtySet, SeatPosition, StockChange
from shared.contracts.event_file import EventFile, GaSection, SeatedSection
from shared.postgres.engine import transaction

SEATS = text(
    "INSERT INTO inventory.seat (event_id, section_id, position, row, number) "
    "SELECT :event_id, :section_id, (r - 1) * (CAST(:seats_per_row AS int) + 1) + n - 1, CAST(r AS text), n "
    "FROM generate_series(CAST(:first AS int), CAST(:rows AS int)) AS r, "
    "generate_series(1, CAST(:seats_per_row AS int)) AS n"
)
Row = Mapping[str, Any]


async def add(change: StockChange, wanted: Row) -> None:
    """A new section, all of it for sale."""
    row = {"event_id": change.event_id, "seats_remaining": wanted["capacity"], **wanted}
    await change.connection.execute(insert(tables.section).values(**row))
    if wanted["kind"] == "seated":
        await _seats(change, wanted, first=1)


async def reshape(change: StockChange, now: Row, wanted: Row) -> None:
    """Rows may be added and taken away behind; any other shape is another section. Raises `StockConflict`."""
    if (now["kind"], wanted["kind"]) != ("seated", "seated") or now["seats_per_row"] != wanted["seats_per_row"]:
        await remove(change, now)
        await add(change, wanted)
        return
    section_id = now["section_id"]
    if wanted["rows"] < now["rows"]:
        await _unmake(change, section_id, from_position=wanted["rows"] * (now["seats_per_row"] + 1))
    else:
        await _seats(change, wanted, first=now["rows"] + 1)
    more = wanted["capacity"] - now["capacity"]
    mine = tables.section.c.event_id == change.event_id, tables.section.c.section_id == section_id
    values = {**wanted, "seats_remaining": tables.section.c.seats_remaining + more, "version": now["version"] + 1}
    await change.connection.execute(update(tables.section).where(*mine).values(**values))
    del change.sections[section_id]


async def remove(change: StockChange, now: Row) -> None:
    """Raises `StockConflict` unless all of it is free."""
    section_id = now["section_id"]
    if now["kind"] == "seated":
        await _unmake(change, section_id, from_position=0)
    elif taken := now["capacity"] - now["seats_remaining"]:
        live, out = taken - now["blocked"], now["blocked"]
        detail = f"{live} places of {section_id} are held or sold, {out} are blocked or kept aside."
        raise StockConflict(detail, section_id=section_id, taken=taken)
    mine = tables.section.c.event_id == change.event_id, tables.section.c.section_id == section_id
    await change.connection.execute(delete(tables.section).where(*mine))
    del change.sections[section_id]


async def _seats(change: StockChange, wanted: Row, *, first: int) -> None:
    named = {name: wanted[name] for name in ("section_id", "rows", "seats_per_row")}
    await change.connection.execute(SEATS, {"event_id": change.event_id, "first": first, **named})


async def _unmake(change: StockChange, section_id: str, *, from_position: int) -> None:
    """Takes the seats from this place on away; raises `StockConflict`, which names those that are not free."""
    seat = tables.seat.c
    these = seat.event_id == change.event_id, seat.section_id == section_id, seat.position >= from_position
    query = select(tables.seat).where(*these, seat.status != "available").order_by(seat.position).with_for_update()
    taken: dict[str, list[SeatPosition]] = {}
    for row in (await change.connection.execute(query)).mappings():
        taken.setdefault(row["status"], []).append((section_id, row["position"]))
    if taken:
        raise conflict(change, taken)
    await change.connection.execute(delete(tables.seat).where(*these))


SHAPE = ("kind", "rows", "seats_per_row")


@dataclass(frozen=True, slots=True)
class Applied:
    """Whether the file changed anything, and what a gate that stays open must be told of."""

    changed: bool
    touched: DirtySet


async def apply_event_file(
    db: AsyncEngine, file: EventFile, *, actor: str = "system", reason: str | None = None, dry_run: bool = False
) -> Applied:
    """Raises `StockConflict`, and then nothing was changed. A dry run refuses the same and changes nothing."""
    async with transaction(db, dry_run=dry_run) as connection:
        await connection.execute(EXCLUSIVE_LOCK, {"event_id": file.event_id})
        before = await _event(connection, file)
        change = StockChange(connection, file.event_id, before["version"] if before else 0)
        query = select(tables.section.c.section_id).where(tables.section.c.event_id == file.event_id)
        await change.lock((await connection.execute(query)).scalars())
        _same_currency(change, file, before)
        moved, renamed = await _apply_sections(change, file)
        for allotment in file.allotments:
            renamed |= await upsert(change, allotment.allotment_id, allotment)
        wanted = _event_row(file)
        changed = moved or renamed or before is None or any(before[name] != value for name, value in wanted.items())
        if changed:
            raised: dict[str, Any] = {"redis_epoch": tables.event.c.redis_epoch + 1} if moved else {}
            mine = tables.event.c.event_id == file.event_id
            await connection.execute(update(tables.event).where(mine).values(**wanted, **raised))
            change.detail |= {"event": _plain(file), "refilled": moved}
            await change.write(actor=actor, action="apply", reason=reason)
    return Applied(changed, DirtySet() if moved else change.touched)


async def _event(connection: AsyncConnection, file: EventFile) -> RowMapping | None:
    """The event as it was; a new one is made."""
    query = select(tables.event).where(tables.event.c.event_id == file.event_id).with_for_update()
    found = (await connection.execute(query)).mappings().one_or_none()
    if found is None:
        await connection.execute(insert(tables.event).values(**_event_row(file)))
    return found


def _same_currency(change: StockChange, file: EventFile, before: RowMapping | None) -> None:
    taken = sum(row["capacity"] - row["seats_remaining"] - row["blocked"] for row in change.sections.values())
    if before is not None and before["currency"] != file.currency and taken:
        raise StockConflict(
            f"{taken} places are held or sold in {before['currency']}; the currency stays.", taken=taken
        )


def _event_row(file: EventFile) -> dict[str, Any]:
    tour = file.sales.tour
    return {
        "event_id": file.event_id, "name": file.name, "venue": file.venue, "currency": file.currency,
        "starts_at": file.starts_at, "timezone": file.zone, **file.sales.model_dump(exclude={"tour"}),
        "tour_id": tour.tour_id if tour else None,
        "tour_tickets_per_customer": tour.tickets_per_customer if tour else 0,
    }  # fmt: skip


def _plain(file: EventFile) -> dict[str, Any]:
    return {name: str(value) if name == "starts_at" else value for name, value in _event_row(file).items()}


def _section_row(section: SeatedSection | GaSection, ordinal: int) -> dict[str, Any]:
    levels = [level.model_dump(mode="json") for level in getattr(section, "price_levels", [])]
    shape = (section.rows, section.seats_per_row) if isinstance(section, SeatedSection) else (0, 0)
    return {
        "section_id": section.section_id, "ordinal": ordinal, "name": section.name, "kind": section.kind,
        "rows": shape[0], "seats_per_row": shape[1],
        "capacity": section.capacity, "price_minor": section.price_minor, "fee_minor": section.fee_minor,
        "price_levels": levels,
    }  # fmt: skip


async def _apply_sections(change: StockChange, file: EventFile) -> tuple[bool, bool]:
    """Whether seats were made or unmade, and whether anything else about sections changed."""
    moved = renamed = False
    for ordinal, section in enumerate(file.sections):
        wanted, now = _section_row(section, ordinal), change.sections.get(section.section_id)
        if now is None:
            await add(change, wanted)
            moved = True
        elif any(now[name] != wanted[name] for name in SHAPE):
            await reshape(change, now, wanted)
            moved = True
        elif any(now[name] != value for name, value in wanted.items()):
            if section.kind == "ga":
                await resize(change, section.section_id, section.capacity)
            mine = tables.section.c.event_id == file.event_id, tables.section.c.section_id == section.section_id
            await change.connection.execute(update(tables.section).where(*mine).values(**wanted))
            renamed = True
    for gone in change.sections.keys() - {section.section_id for section in file.sections}:
        await remove(change, change.sections[gone])
        moved = True
    await change.lock(section.section_id for section in file.sections)
    return moved, renamed
