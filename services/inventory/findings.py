"""What reconcile found and what it did about it, kept so that any process can tell an operator."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.comparison import Difference
from services.inventory.tables import drift

SHOWN_MAX, NOTED_MAX = 200, 1000
RECENT = text(
    "SELECT what, seen, should_be, since, done, done_at FROM inventory.drift WHERE event_id = :event_id "
    "ORDER BY id DESC LIMIT :count_max"
)
FORGET = text("DELETE FROM inventory.drift WHERE done_at < clock_timestamp() - interval '30 days'")


class Finding(NamedTuple):
    """One difference that stayed, since when, and what became of it: `corrected`, or `left` for the next look or for
    people.
    """

    difference: Difference
    since: datetime
    done: str


async def note(engine: AsyncEngine, event_id: str, findings: Iterable[Finding]) -> None:
    """Keeps them; of very many the first."""
    rows = [
        {"event_id": event_id, "what": what, "seen": seen, "should_be": should_be, "since": since, "done": done}
        for (what, seen, should_be), since, done in sorted(findings)[:NOTED_MAX]
    ]
    if rows:
        async with engine.begin() as connection:
            await connection.execute(insert(drift), rows)


async def recent(connection: AsyncConnection, event_id: str) -> list[Mapping[str, Any]]:
    """The latest, newest first."""
    rows = await connection.execute(RECENT, {"event_id": event_id, "count_max": SHOWN_MAX})
    return [dict(row) for row in rows.mappings()]


async def forget(engine: AsyncEngine) -> None:
    """Findings are kept for a month."""
    async with engine.begin() as connection:
        await connection.execute(FORGET)
