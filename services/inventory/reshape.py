"""Seats made and unmade by an event file: only where nobody holds, bought or was promised one of them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select, text, update

from services.inventory import tables
from services.inventory.aside import in_the_way
from services.inventory.change import Change, Seat
from services.inventory.problems import UnsafeChange

SEATS = text(
    "INSERT INTO inventory.seat (event_id, section_id, position, row, number) "
    "SELECT :event_id, :section_id, (r - 1) * (CAST(:seats_per_row AS int) + 1) + n - 1, CAST(r AS text), n "
    "FROM generate_series(CAST(:first AS int), CAST(:rows AS int)) AS r, "
    "generate_series(1, CAST(:seats_per_row AS int)) AS n"
)
Row = Mapping[str, Any]


async def add(change: Change, wanted: Row) -> None:
    """A new section, all of it for sale."""
    row = {"event_id": change.event_id, "seats_remaining": wanted["capacity"], **wanted}
    await change.connection.execute(insert(tables.section).values(**row))
    if wanted["kind"] == "seated":
        await _seats(change, wanted, first=1)


async def reshape(change: Change, now: Row, wanted: Row) -> None:
    """Rows may be added and taken away behind; any other shape is another section. Raises `UnsafeChange`."""
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


async def remove(change: Change, now: Row) -> None:
    """Raises `UnsafeChange` unless all of it is free."""
    section_id = now["section_id"]
    if now["kind"] == "seated":
        await _unmake(change, section_id, from_position=0)
    elif taken := now["capacity"] - now["seats_remaining"]:
        live, out = taken - now["blocked"], now["blocked"]
        detail = f"{live} places of {section_id} are held or sold, {out} are blocked or kept aside."
        raise UnsafeChange(detail, section_id=section_id, taken=taken)
    mine = tables.section.c.event_id == change.event_id, tables.section.c.section_id == section_id
    await change.connection.execute(delete(tables.section).where(*mine))
    del change.sections[section_id]


async def _seats(change: Change, wanted: Row, *, first: int) -> None:
    named = {name: wanted[name] for name in ("section_id", "rows", "seats_per_row")}
    await change.connection.execute(SEATS, {"event_id": change.event_id, "first": first, **named})


async def _unmake(change: Change, section_id: str, *, from_position: int) -> None:
    """Takes the seats from this place on away; raises `UnsafeChange`, which names those that are not free."""
    seat = tables.seat.c
    these = seat.event_id == change.event_id, seat.section_id == section_id, seat.position >= from_position
    query = select(tables.seat).where(*these, seat.status != "available").order_by(seat.position).with_for_update()
    taken: dict[str, list[Seat]] = {}
    for row in (await change.connection.execute(query)).mappings():
        taken.setdefault(row["status"], []).append((section_id, row["position"]))
    if taken:
        raise in_the_way(change, taken)
    await change.connection.execute(delete(tables.seat).where(*these))
