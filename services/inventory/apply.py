"""An event file into the ledger: the same file again changes nothing, and nobody loses a place they hold or bought.

It is done alone, like a rebuild. Where seats are made or unmade the gate's epoch rises and the gate is filled anew; the
size of a GA section, prices, limits and allotments change under a gate that goes on selling.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.allotments import declare
from services.inventory.change import Change, Touched
from services.inventory.problems import UnsafeChange
from services.inventory.rebuild import FENCE_ALONE
from services.inventory.reshape import add, remove, reshape
from services.inventory.resize import resize
from shared.contracts.event_file import EventFile, GaSection, SeatedSection
from shared.postgres import transaction

SHAPE = ("kind", "rows", "seats_per_row")


@dataclass(frozen=True, slots=True)
class Applied:
    """Whether the file changed anything, and what a gate that stays open must be told of."""

    changed: bool
    touched: Touched


async def apply(
    engine: AsyncEngine, file: EventFile, *, actor: str = "system", reason: str | None = None, dry_run: bool = False
) -> Applied:
    """Raises `UnsafeChange`, and then nothing was changed. A dry run refuses the same and changes nothing."""
    async with transaction(engine, dry_run=dry_run) as connection:
        await connection.execute(FENCE_ALONE, {"event_id": file.event_id})
        before = await _event(connection, file)
        change = Change(connection, file.event_id, before["version"] if before else 0)
        query = select(tables.section.c.section_id).where(tables.section.c.event_id == file.event_id)
        await change.lock((await connection.execute(query)).scalars())
        _same_currency(change, file, before)
        moved, renamed = await _apply_sections(change, file)
        for allotment in file.allotments:
            renamed |= await declare(change, allotment.allotment_id, allotment)
        wanted = _event_row(file)
        changed = moved or renamed or before is None or any(before[name] != value for name, value in wanted.items())
        if changed:
            raised: dict[str, Any] = {"gate_epoch": tables.event.c.gate_epoch + 1} if moved else {}
            mine = tables.event.c.event_id == file.event_id
            await connection.execute(update(tables.event).where(mine).values(**wanted, **raised))
            change.detail |= {"event": _plain(file), "refilled": moved}
            await change.write(actor=actor, action="apply", reason=reason)
    return Applied(changed, Touched() if moved else change.touched)


async def _event(connection: AsyncConnection, file: EventFile) -> RowMapping | None:
    """The event as it was; a new one is made."""
    query = select(tables.event).where(tables.event.c.event_id == file.event_id).with_for_update()
    found = (await connection.execute(query)).mappings().one_or_none()
    if found is None:
        await connection.execute(insert(tables.event).values(**_event_row(file)))
    return found


def _same_currency(change: Change, file: EventFile, before: RowMapping | None) -> None:
    taken = sum(row["capacity"] - row["seats_remaining"] - row["blocked"] for row in change.sections.values())
    if before is not None and before["currency"] != file.currency and taken:
        raise UnsafeChange(f"{taken} places are held or sold in {before['currency']}; the currency stays.", taken=taken)


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


async def _apply_sections(change: Change, file: EventFile) -> tuple[bool, bool]:
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
