"""Tells outages of dependencies (PostgreSQL, Redis, another service) from bugs.

An outage is 503 with Retry-After for a fan, and one line in the log.
"""

import asyncpg
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import TimeoutError as RedisLate
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shared.errors.database import is_busy, is_full, is_gone
from shared.errors.problems import Problem, Unavailable

CERTAIN = (RedisAway, RedisLate, OperationalError, InterfaceError, PoolTimeout, OSError)
POSSIBLE = (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def is_outage(failed: BaseException) -> bool:
    """Whether the failure passes by itself: no bug of this code."""
    if isinstance(failed, Problem):
        return failed.code == Unavailable.status
    return isinstance(failed, CERTAIN) or (isinstance(failed, POSSIBLE) and (is_gone(failed) or is_busy(failed)))


def problem_of(failed: BaseException) -> Problem:
    """The problem to answer with during an outage."""
    if is_full(failed):
        return Unavailable("The database is out of space. Nothing was changed; try again shortly.")
    if isinstance(failed, RedisAway | RedisLate):
        return Unavailable("The waiting room and the stock cannot be reached. Try again shortly.")
    return Unavailable()


def in_one_line(failed: BaseException) -> str:
    """The type of the failure and the first line of its message."""
    lines = str(failed).splitlines()
    return f"{type(failed).__name__}: {lines[0]}" if lines else type(failed).__name__
