"""Classifies PostgreSQL errors by SQLSTATE: the server is gone, it is busy or full, or the statement is wrong.

The class decides what happens to the connection and to the request: connections to a server that is gone are dropped;
busy and full pass. All three are 503 to a fan, who may retry.
"""

import asyncpg


class WrongDatabase(Exception):
    """The database is missing, or set up so that Onsale could not keep its guarantees; nothing was started."""


DEADLOCK = asyncpg.DeadlockDetectedError.sqlstate
CONFLICTS = {
    DEADLOCK: "deadlock",
    asyncpg.SerializationError.sqlstate: "serialization",
    asyncpg.LockNotAvailableError.sqlstate: "lock_timeout",
    asyncpg.QueryCanceledError.sqlstate: "statement_timeout",
}
BUSY = set(CONFLICTS)
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


def is_gone(failed: BaseException) -> bool:
    """Whether the server or this connection is unusable. A statement in flight may have been written.

    An argument that the driver cannot encode is the caller's error and is not counted.
    """
    state = sqlstate_of(failed)
    if state is not None:
        return state in GONE or state[:2] == CONNECTION_CLASS
    return any(
        isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError)
        and not isinstance(error, ValueError)
        for error in _causes(failed)
    )


def is_busy(failed: BaseException) -> bool:
    """Whether a lock, a time limit or a resource was in the way: nothing was written, and a retry is safe."""
    return sqlstate_of(failed) in BUSY | FULL


def is_full(failed: BaseException) -> bool:
    """Whether the server is out of disk or memory: it refuses writes until an operator frees some."""
    return sqlstate_of(failed) in FULL


def is_unstorable(failed: BaseException) -> bool:
    """Whether PostgreSQL cannot store a value of the request: a text with a null character, or a number beyond the
    range of its column, which the driver refuses.
    """
    refused = sqlstate_of(failed) == asyncpg.CharacterNotInRepertoireError.sqlstate
    return refused or any(isinstance(error, OverflowError) for error in _causes(failed))


def sqlstate_of(failed: BaseException) -> str | None:
    """The SQLSTATE that the server sent, however deep the error is wrapped; `None` if it sent none."""
    return next((state for error in _causes(failed) if (state := getattr(error, "sqlstate", None))), None)


def _causes(failed: BaseException) -> list[BaseException]:
    """The error itself, the one SQLAlchemy wrapped, and the one the driver raised."""
    causes: list[BaseException] = []
    error: BaseException | None = failed
    while error is not None and error not in causes:
        causes.append(error)
        error = getattr(error, "orig", None) or error.__cause__
    return causes
