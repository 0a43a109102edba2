"""An event file into the ledger: the same file again changes nothing, and nobody loses a place they hold or bought.

A change of places is made alone, like a rebuild: it raises the gate's epoch, and every gate is filled anew.
"""

from typing import Any

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.problems import UnsafeChange
from services.inventory.rebuild import FENCE_ALONE
from shared.contracts.event_file import EventFile, GaSection, SeatedSection

SEATS = text(
    "INSERT INTO inventory.seat (event_id, section_id, position, row, number) "
    "SELECT :event_id, :section_id, (r - 1) * (CAST(:seats_per_row AS int) + 1) + n - 1, CAST(r AS text), n "
    "FROM generate_series(1, CAST(:rows AS int)) AS r, generate_series(1, CAST(:seats_per_row AS int)) AS n"
)
PLACES = ("kind", "rows", "seats_per_row", "capacity")


async def apply(engine: AsyncEngine, file: EventFile) -> bool:
    """True when it changed something. Raises `UnsafeChange`, and then nothing was changed."""
    async with engine.begin() as connection:
        await connection.execute(FENCE_ALONE, {"event_id": file.event_id})
        query = select(tables.event).where(tables.event.c.event_id == file.event_id).with_for_update()
        event = (await connection.execute(query)).mappings().one_or_none()
        wanted = _event_row(file)
        if event is None:
            await connection.execute(insert(tables.event).values(**wanted))
        moved, renamed = await _apply_sections(connection, file)
        changed = event is None or any(event[name] != value for name, value in wanted.items()) or renamed
        if changed or moved:
            raised: dict[str, Any] = {"version": tables.event.c.version + 1}
            raised |= {"gate_epoch": tables.event.c.gate_epoch + 1} if moved else {}
            where = tables.event.c.event_id == file.event_id
            await connection.execute(update(tables.event).where(where).values(**wanted, **raised))
    return changed or moved


def _event_row(file: EventFile) -> dict[str, Any]:
    return {
        "event_id": file.event_id, "name": file.name, "venue": file.venue, "currency": file.currency,
        "starts_at": file.starts_at, **file.sales.model_dump(),
    }  # fmt: skip


def _section_row(section: SeatedSection | GaSection, ordinal: int) -> dict[str, Any]:
    levels = [level.model_dump(mode="json") for level in getattr(section, "price_levels", [])]
    shape = (section.rows, section.seats_per_row) if isinstance(section, SeatedSection) else (0, 0)
    return {
        "section_id": section.section_id, "ordinal": ordinal, "name": section.name, "kind": section.kind,
        "rows": shape[0], "seats_per_row": shape[1],
        "capacity": section.capacity, "price_minor": section.price_minor, "fee_minor": section.fee_minor,
        "price_levels": levels,
    }  # fmt: skip


async def _apply_sections(connection: AsyncConnection, file: EventFile) -> tuple[bool, bool]:
    """Whether places changed, and whether anything else about sections did."""
    query = select(tables.section).where(tables.section.c.event_id == file.event_id)
    rows = (await connection.execute(query.order_by(tables.section.c.section_id).with_for_update())).mappings()
    existing = {row["section_id"]: row for row in rows}
    moved = renamed = False
    for ordinal, section in enumerate(file.sections):
        wanted, now = _section_row(section, ordinal), existing.pop(section.section_id, None)
        if now is None:
            await _add(connection, file.event_id, wanted)
            moved = True
        elif any(now[name] != wanted[name] for name in PLACES):
            await _reshape(connection, file.event_id, dict(now), wanted)
            moved = True
        elif any(now[name] != value for name, value in wanted.items()):
            where = _which(file.event_id, section.section_id)
            await connection.execute(update(tables.section).where(*where).values(**wanted))
            renamed = True
    for gone in existing.values():
        await _remove(connection, file.event_id, dict(gone))
        moved = True
    return moved, renamed


def _which(event_id: str, section_id: str) -> tuple[Any, Any]:
    return tables.section.c.event_id == event_id, tables.section.c.section_id == section_id


async def _add(connection: AsyncConnection, event_id: str, wanted: dict[str, Any]) -> None:
    row = {"event_id": event_id, "seats_remaining": wanted["capacity"], **wanted}
    await connection.execute(insert(tables.section).values(**row))
    if wanted["kind"] == "seated":
        names = ("section_id", "rows", "seats_per_row")
        await connection.execute(SEATS, {"event_id": event_id, **{name: wanted[name] for name in names}})


async def _reshape(connection: AsyncConnection, event_id: str, now: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A GA section may grow, and shrink to what is held and sold; seats change shape only while all are free."""
    section_id, taken = now["section_id"], now["capacity"] - now["seats_remaining"]
    if now["kind"] == wanted["kind"] == "ga":
        if wanted["capacity"] < taken:
            raise UnsafeChange(f"{taken} places of {section_id} are held or sold.", section_id=section_id, taken=taken)
        change = {**wanted, "seats_remaining": wanted["capacity"] - taken, "version": now["version"] + 1}
        await connection.execute(update(tables.section).where(*_which(event_id, section_id)).values(**change))
        return
    await _remove(connection, event_id, now)
    await _add(connection, event_id, wanted)


async def _remove(connection: AsyncConnection, event_id: str, now: dict[str, Any]) -> None:
    section_id, taken = now["section_id"], now["capacity"] - now["seats_remaining"]
    if taken:
        raise UnsafeChange(f"{taken} places of {section_id} are held or sold.", section_id=section_id, taken=taken)
    seats = tables.seat.c.event_id == event_id, tables.seat.c.section_id == section_id
    await connection.execute(delete(tables.seat).where(*seats))
    await connection.execute(delete(tables.section).where(*_which(event_id, section_id)))
