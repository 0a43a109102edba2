"""The stock report for operators: places by state, allotment and revenue of each section, read in one snapshot."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.stock.allotments import allotments
from services.inventory.store.snapshot import count_sections
from shared.contracts.admin.inventory import StockCounts, StockReport
from shared.errors.problems import UnknownEvent
from shared.postgres.engine import snapshot, statement

ALLOTTED = statement(__package__, "allotted_by_section")
REVENUE = statement(__package__, "revenue_by_section")


async def stock_report(db: AsyncEngine, event_id: str) -> StockReport:
    """Raises `UnknownEvent`."""
    async with snapshot(db) as connection:
        return await _report(connection, event_id)


async def _report(connection: AsyncConnection, event_id: str) -> StockReport:
    which = {"event_id": event_id}
    columns = tables.event.c
    query = select(columns.currency, columns.version).where(columns.event_id == event_id)
    event = (await connection.execute(query)).one_or_none()
    if event is None:
        raise UnknownEvent
    allotted: dict[str, dict[str, int]] = {}
    for part in await connection.execute(ALLOTTED, which):
        allotted.setdefault(part.section_id, {})[part.allotment_id] = int(part.n)
    revenue = {row.section_id: int(row.earned) for row in await connection.execute(REVENUE, which)}
    sections: list[dict[str, Any]] = []
    for section_id, row in (await count_sections(connection, event_id)).items():
        by_allotment = allotted.get(section_id, {})
        sections.append({
            "section_id": section_id, "capacity": row["capacity"], "available": row["available"],
            "held": int(row["held"]), "sold": int(row["sold"]), "blocked": row["blocked"] - sum(by_allotment.values()),
            "kept_aside": sum(by_allotment.values()), "kept_aside_by": by_allotment,
            "revenue_minor": revenue.get(section_id, 0),
        })  # fmt: skip
    total = {name: sum(section[name] for section in sections) for name in StockCounts.model_fields}
    return StockReport.model_validate({
        "event_id": event_id, "version": event.version, "currency": event.currency, "sections": sections,
        "total": total, "allotments": await allotments(connection, event_id),
    })  # fmt: skip
