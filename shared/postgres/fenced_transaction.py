"""A transaction on asyncpg itself that begins with an advisory lock (the fence) against a concurrent Redis rebuild.

Used for the few statements that every fan waits for: there the cost of a batch is its round trips. The lock is taken
together with `BEGIN`, in one message but as a statement of its own, because a statement that also read data would use a
snapshot older than the lock.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.errors.database import DEADLOCK, is_busy, is_gone, sqlstate_of
from shared.errors.problems import Unavailable


@asynccontextmanager
async def fenced(db: AsyncEngine, opening: str) -> AsyncIterator[Any]:
    """asyncpg's connection inside a transaction that `opening` began (`BEGIN; SELECT …lock`).

    Raises `Unavailable` if PostgreSQL is unreachable, when the outcome is unknown, or if a lock was held too long, when
    nothing was written. A deadlock is raised as it is, because the victim may start again at once.
    """
    async with db.connect() as connection:
        try:
            driver = await _begin(connection, opening)
            yield driver
            await driver.execute("COMMIT")
        except Exception as failed:
            if is_gone(failed):
                await connection.invalidate(failed)
                raise Unavailable("The database does not answer.") from failed
            await (await driver_connection(connection)).execute("ROLLBACK")
            if is_busy(failed) and sqlstate_of(failed) != DEADLOCK:
                raise Unavailable("The database is busy.") from failed
            raise
        except BaseException:
            await connection.invalidate()  # cancelled in an unknown state: the server rolls back
            raise


async def _begin(connection: AsyncConnection, opening: str) -> Any:
    """Begins the transaction. A connection that its server had ended is replaced once: it had not run anything yet."""
    driver = await driver_connection(connection)
    try:
        await driver.execute(opening)
    except Exception as failed:
        if not is_gone(failed) or isinstance(failed, TimeoutError):
            raise
        await connection.invalidate(failed)
        driver = await driver_connection(connection)
        await driver.execute(opening)
    return driver


async def driver_connection(connection: AsyncConnection) -> Any:
    """asyncpg's connection beneath SQLAlchemy's, in its present transaction."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return driver
