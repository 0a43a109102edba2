"""The stock as its operator sees it: per section what is left, held, sold, blocked, kept aside for whom, and earned."""

from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.stock.allotments import allotments
from services.inventory.stock.snapshot import count_sections
from shared.postgres.engine import snapshot
from shared.web.problems import UnknownEvent

KEPT = text(
    "SELECT allotment_id, section_id, count(*) AS n FROM inventory.seat "
    "WHERE event_id = :event_id AND allotment_id IS NOT NULL GROUP BY 1, 2 "
    "UNION ALL SELECT allotment_id, section_id, kept FROM inventory.allotment_ga "
    "WHERE event_id = :event_id AND kept > 0 "
    "ORDER BY 1, 2"
)
REVENUE = text(
    "WITH bought AS MATERIALIZED (SELECT event_id, reservation_id FROM inventory.reservation "
    "WHERE event_id = :event_id AND status = 'confirmed') "
    "SELECT section_id, sum(unit_price_minor) AS earned "
    "FROM inventory.reservation_seat JOIN bought USING (event_id, reservation_id) GROUP BY section_id "
    "UNION ALL SELECT section_id, sum(quantity * unit_price_minor) "
    "FROM inventory.reservation_ga JOIN bought USING (event_id, reservation_id) GROUP BY section_id"
)
SUMMED = ("capacity", "available", "held", "sold", "blocked", "kept_aside", "revenue_minor")


async def stock_report(db: AsyncEngine, event_id: str) -> dict[str, Any]:
    """From the ledger, as of one moment. `blocked` is by hand; what is kept aside is counted by allotment.

    Raises `UnknownEvent`.
    """
    async with snapshot(db) as connection:
        return await _report(connection, event_id)


async def _report(connection: AsyncConnection, event_id: str) -> dict[str, Any]:
    which = {"event_id": event_id}
    columns = tables.event.c
    query = select(columns.currency, columns.version).where(columns.event_id == event_id)
    event = (await connection.execute(query)).one_or_none()
    if event is None:
        raise UnknownEvent
    kept: dict[str, dict[str, int]] = {}
    for part in await connection.execute(KEPT, which):
        kept.setdefault(part.section_id, {})[part.allotment_id] = int(part.n)
    revenue = {row.section_id: int(row.earned) for row in await connection.execute(REVENUE, which)}
    sections = []
    for section_id, row in (await count_sections(connection, event_id)).items():
        aside = kept.get(section_id, {})
        sections.append({
            "section_id": section_id, "capacity": row["capacity"], "available": row["available"],
            "held": int(row["held"]), "sold": int(row["sold"]), "blocked": row["blocked"] - sum(aside.values()),
            "kept_aside": sum(aside.values()), "kept_aside_by": aside, "revenue_minor": revenue.get(section_id, 0),
        })  # fmt: skip
    return {
        "event_id": event_id, "version": event.version, "currency": event.currency, "sections": sections,
        "total": {name: sum(section[name] for section in sections) for name in SUMMED},
        "allotments": await allotments(connection, event_id),
    }  # fmt: skip
