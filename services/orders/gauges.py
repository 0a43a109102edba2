"""Gauges of the work that waits, read from the database."""

from sqlalchemy.ext.asyncio import AsyncEngine

from services.orders.metrics import DUE, OLDEST_DUE
from services.orders.order.leases import count_due

REFRESH_S = 10.0


async def refresh_gauges(db: AsyncEngine) -> None:
    """Counts the due orders that no worker has, all events together."""
    count, oldest_s = await count_due(db)
    DUE.set(count)
    OLDEST_DUE.set(oldest_s)
