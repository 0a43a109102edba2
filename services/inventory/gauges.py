"""Gauges of the live holds, read from the database."""

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import HOLDS_PENDING, OLDEST_HOLD
from shared.postgres.engine import statement

REFRESH_S = 10.0
STATUSES = ("pending_payment", "paying")
COUNT_LIVE = statement(__package__, "count_live_holds")


class LiveHoldGauges:
    """An event whose last hold has ended goes back to 0."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db, self._events = db, set[str]()

    async def refresh(self) -> None:
        """Counts the live holds of every event by their status."""
        async with self._db.connect() as connection:
            live = {(row.event_id, row.status): row for row in await connection.execute(COUNT_LIVE)}
        self._events |= {event_id for event_id, _ in live}
        for event_id in self._events:
            rows = {status: live.get((event_id, status)) for status in STATUSES}
            for status, row in rows.items():
                HOLDS_PENDING.labels(event_id, status).set(row.holds if row else 0)
            OLDEST_HOLD.labels(event_id).set(max((row.oldest_s for row in rows.values() if row), default=0))
