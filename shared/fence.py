"""A transaction on the driver itself, opened behind a lock that holds off a filling of the engine.

For the few statements every fan waits for: what a batch costs there is its round trips. The lock is taken together with
`BEGIN`, in one message and a statement of its own, because a statement that also read would read a snapshot older than
the lock.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.problems import Unavailable

_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    OSError,
)


def is_away(failed: Exception) -> bool:
    """Whether the ledger could not be asked; an argument that the driver could not encode is the asker's fault."""
    return isinstance(failed, _AWAY) and not isinstance(failed, ValueError)


@asynccontextmanager
async def fenced(engine: AsyncEngine, opening: str) -> AsyncIterator[Any]:
    """The driver's connection inside a transaction that `opening` began (`BEGIN; SELECT …lock`).

    Raises `Unavailable` if the ledger is away; then nobody knows what was written.
    """
    async with engine.connect() as connection:
        driver = await driver_of(connection)
        try:
            await driver.execute(opening)
            yield driver
            await driver.execute("COMMIT")
        except Exception as failed:
            if not is_away(failed):
                await driver.execute("ROLLBACK")
                raise
            await connection.invalidate()
            raise Unavailable("The ledger does not answer.") from failed
        except BaseException:
            await connection.invalidate()  # cut off: nobody knows what state it is in; the server rolls back
            raise


async def driver_of(connection: AsyncConnection) -> Any:
    """The driver's own connection, in whatever transaction it is."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return driver
