"""What went wrong at the ledger, by the SQLSTATE: the server is gone, somebody is in the way, or the statement is bad.

It decides what becomes of the connection and of the fan: a gone server's connections are thrown away, somebody in the
way passes, and both are 503 to a fan, who may ask again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from shared.web.problems import Unavailable

Answer = TypeVar("Answer")

DEADLOCK = asyncpg.DeadlockDetectedError.sqlstate
BUSY = {
    DEADLOCK,
    asyncpg.SerializationError.sqlstate,
    asyncpg.LockNotAvailableError.sqlstate,
    asyncpg.QueryCanceledError.sqlstate,  # statement_timeout
}
FULL = {
    asyncpg.DiskFullError.sqlstate,
    asyncpg.OutOfMemoryError.sqlstate,
    asyncpg.ConfigurationLimitExceededError.sqlstate,
    asyncpg.PostgresIOError.sqlstate,
}
GONE = {
    asyncpg.AdminShutdownError.sqlstate,
    asyncpg.CrashShutdownError.sqlstate,
    asyncpg.CannotConnectNowError.sqlstate,
    asyncpg.TooManyConnectionsError.sqlstate,
    asyncpg.ReadOnlySQLTransactionError.sqlstate,  # a primary that became a standby
    asyncpg.IdleInTransactionSessionTimeoutError.sqlstate,
}
CONNECTION_CLASS = asyncpg.PostgresConnectionError.sqlstate[:2]
TRIES_MAX = 4
PAUSE_MAX_S = 0.05


def is_gone(failed: BaseException) -> bool:
    """Whether this server, or this connection to it, is of no use any more. What was under way may have been written.

    An argument that the driver could not encode is the asker's fault.
    """
    state = sqlstate_of(failed)
    if state is not None:
        return state in GONE or state[:2] == CONNECTION_CLASS
    return any(
        isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError)
        and not isinstance(error, ValueError)
        for error in _told(failed)
    )


def is_busy(failed: BaseException) -> bool:
    """Whether somebody or something was in the way: nothing was written, and it may be asked again."""
    return sqlstate_of(failed) in BUSY | FULL


def is_full(failed: BaseException) -> bool:
    """Whether the server has no room on its disk or in its memory: it refuses until somebody makes some."""
    return sqlstate_of(failed) in FULL


def sqlstate_of(failed: BaseException) -> str | None:
    """The server's word, however deep it is wrapped."""
    return next((state for error in _told(failed) if (state := getattr(error, "sqlstate", None))), None)


def _told(failed: BaseException) -> list[BaseException]:
    """The failure, what SQLAlchemy wrapped, and what the driver raised."""
    told: list[BaseException] = []
    error: BaseException | None = failed
    while error is not None and error not in told:
        told.append(error)
        error = getattr(error, "orig", None) or error.__cause__
    return told


async def outlive_deadlocks(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """What `work`, a transaction, answers. The loser of a deadlock was rolled back whole, so it simply begins again.

    Raises `Unavailable` when it lost too often.
    """
    tries = 0
    while True:
        try:
            return await work()
        except Exception as failed:
            if sqlstate_of(failed) != DEADLOCK:
                raise
            tries += 1
            if tries == TRIES_MAX:
                raise Unavailable("The ledger is busy.") from failed
        await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))  # noqa: S311 - so that two losers do not meet again
