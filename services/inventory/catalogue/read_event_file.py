"""Reads inventory's part of an event file back from the database: applying it again changes nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory import tables
from services.inventory.catalogue.apply_event_file import EventFilePart
from services.inventory.layout.selection import apart
from shared.contracts.event_file import GaSection, SalesPart, SeatedSection, StockPart
from shared.contracts.event_parts.seat_labels import stored_labels
from shared.contracts.event_parts.traits import named
from shared.errors.problems import UnknownEvent
from shared.postgres.engine import snapshot
from shared.runtime.clock import is_offset, zone_of

EVENT_FIELDS = ("event_id", "name", "venue", "currency", "rehearsal", "price_types")


async def read_event_file(db: AsyncEngine, event_id: str, parts: Iterable[EventFilePart] = ()) -> StockPart:
    """Raises `UnknownEvent`."""
    async with snapshot(db) as connection:
        mine = select(tables.event).where(tables.event.c.event_id == event_id)
        event = (await connection.execute(mine)).mappings().one_or_none()
        if event is None:
            raise UnknownEvent
        query = select(tables.section).where(tables.section.c.event_id == event_id).order_by(tables.section.c.ordinal)
        rows = (await connection.execute(query.where(tables.section.c.kind != "type"))).mappings().all()
        sections, _ = apart(rows)
        own = [field for part in parts for field in (await part.file_fields(connection, event)).items()]
    return StockPart.model_validate({
        **{name: event[name] for name in EVENT_FIELDS}, **_times(event),
        "sales": _sales(event), "sections": [_section(row) for row in sections], **dict(own),
    })  # fmt: skip


def _times(event: RowMapping) -> dict[str, Any]:
    """Start and end on the venue's clock. A zone that is an offset stands in the times themselves."""
    zone = event["timezone"]
    times = {name: event[name] and event[name].astimezone(zone_of(zone)) for name in ("starts_at", "ends_at")}
    return times if is_offset(zone) else {**times, "timezone": zone}


def _sales(event: RowMapping) -> dict[str, Any]:
    values = {name: event[name] for name in SalesPart.model_fields if name in event}
    if values["names_until"] is not None:
        values["names_until"] = values["names_until"].astimezone(zone_of(event["timezone"]))
    if event["tour_id"] is not None:
        values["tour"] = {"tour_id": event["tour_id"], "tickets_per_customer": event["tour_tickets_per_customer"]}
    return values


def _section(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["kind"] != "seated":
        return {**{name: row[name] for name in GaSection.model_fields}, "traits": list(row["traits"])}
    labels = row["labels"] or {}
    known = stored_labels(row["rows"], row["seats_per_row"], labels)
    names = known.rows
    traits = {trait: named(runs, known, row["seats_per_row"] + 1) for trait, runs in row["traits"].items()}
    levels = [
        {**level, "rows": [names[n - 1] if "rows" in labels else n for n in level["rows"]]}
        for level in row["price_levels"]
    ]
    given = {**row, "rows": row["rows"], "seats": None, **labels, "price_levels": levels, "traits": traits}
    return {name: given[name] for name in SeatedSection.model_fields}
