"""Which failures are outages of what a service stands on, and no bugs of its own: its ledger, its engine, a neighbour.

A fan hears 503 and when to come back; the log has one line.
"""

import asyncpg
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import TimeoutError as RedisLate
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shared.postgres.errors import is_busy, is_full, is_gone
from shared.web.problems import Problem, Unavailable

CERTAIN = (RedisAway, RedisLate, OperationalError, InterfaceError, PoolTimeout, OSError)
POSSIBLE = (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def is_outage(failed: BaseException) -> bool:
    """Whether it passes without anybody changing a line of code."""
    if isinstance(failed, Problem):
        return failed.code == Unavailable.status
    return isinstance(failed, CERTAIN) or (isinstance(failed, POSSIBLE) and (is_gone(failed) or is_busy(failed)))


def problem_of(failed: BaseException) -> Problem:
    """What a fan is told of an outage."""
    if is_full(failed):
        return Unavailable("The ledger has no room to write. Nothing was changed; try again shortly.")
    if isinstance(failed, RedisAway | RedisLate):
        return Unavailable("The engine of the line and the gate does not answer. Try again shortly.")
    return Unavailable()


def in_one_line(failed: BaseException) -> str:
    """Its kind and the first line of its words."""
    told = str(failed).splitlines()
    return f"{type(failed).__name__}: {told[0]}" if told else type(failed).__name__
