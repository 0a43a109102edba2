"""Gauges of the work that waits, read from the database."""

from sqlalchemy.ext.asyncio import AsyncEngine

from services.orders.metrics import DUE, OLDEST_DUE
from shared.postgres.engine import statement

REFRESH_S = 10.0
COUNT_DUE = statement(__package__, "count_due")


async def refresh_gauges(db: AsyncEngine) -> None:
    """Counts the due orders that no worker has, all events together."""
    async with db.connect() as connection:
        count, oldest_s = (await connection.execute(COUNT_DUE)).one()
    DUE.set(count)
    OLDEST_DUE.set(oldest_s)
