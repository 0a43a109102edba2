"""A transaction on the driver itself, opened behind a lock that holds off a filling of the engine.

For the few statements every fan waits for: what a batch costs there is its round trips. The lock is taken together with
`BEGIN`, in one message and a statement of its own, because a statement that also read would read a snapshot older than
the lock.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.postgres.errors import DEADLOCK, is_busy, is_gone, sqlstate_of
from shared.web.problems import Unavailable


@asynccontextmanager
async def fenced(db: AsyncEngine, opening: str) -> AsyncIterator[Any]:
    """The driver's connection inside a transaction that `opening` began (`BEGIN; SELECT …lock`).

    Raises `Unavailable` if the ledger is away, and then nobody knows what was written, or if somebody was in the way
    for too long, and then nothing was. The loser of a deadlock hears of it, for it may begin again at once.
    """
    async with db.connect() as connection:
        try:
            driver = await _begun(connection, opening)
            yield driver
            await driver.execute("COMMIT")
        except Exception as failed:
            if is_gone(failed):
                await connection.invalidate(failed)
                raise Unavailable("The ledger does not answer.") from failed
            await (await driver_of(connection)).execute("ROLLBACK")
            if is_busy(failed) and sqlstate_of(failed) != DEADLOCK:
                raise Unavailable("The ledger is busy.") from failed
            raise
        except BaseException:
            await connection.invalidate()  # cut off: nobody knows what state it is in; the server rolls back
            raise


async def _begun(connection: AsyncConnection, opening: str) -> Any:
    """The driver inside the transaction. A connection that its server had ended is replaced, once: nothing was asked of
    it yet.
    """
    driver = await driver_of(connection)
    try:
        await driver.execute(opening)
    except Exception as failed:
        if not is_gone(failed) or isinstance(failed, TimeoutError):
            raise
        await connection.invalidate(failed)
        driver = await driver_of(connection)
        await driver.execute(opening)
    return driver


async def driver_of(connection: AsyncConnection) -> Any:
    """The driver's own connection, in whatever transaction it is."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return driver
