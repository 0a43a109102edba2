"""Waits until a condition holds, instead of sleeping for a guessed time.

Counts the row versions that statements wrote, as PostgreSQL counts them.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import httpx
import redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

UP_WITHIN_S = 150.0  # a server, on a busy machine


async def wait_until(
    predicate: Callable[[], object | Awaitable[object]], *, timeout_s: float = 60.0, interval_s: float = 0.01
) -> None:
    """Returns once the predicate, sync or async, holds; fails with its source after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {timeout_s:g} s (last answer {answer!r}): {_described(predicate)}")
        await asyncio.sleep(interval_s)


def until(answers: Callable[[], object], *, what: str, timeout_s: float = UP_WITHIN_S) -> None:
    """Blocks until `answers()` is true. A server that does not listen yet may refuse."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if answers():
                return
        except (httpx.HTTPError, redis.RedisError, OSError):
            pass
        assert time.monotonic() < deadline_s, f"{what} is not up in time"
        time.sleep(0.02)


def _described(predicate: Callable[[], object]) -> str:
    """The source of the predicate, if Python finds it."""
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):
        return repr(predicate)


CONNECTIONS = 10  # as many as a pool of the tests has
COUNTED = text(
    "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del AS n FROM pg_stat_user_tables WHERE schemaname = :schema"
)


async def row_versions(db: AsyncEngine, schema: str) -> dict[str, int]:
    """Row versions by table, so far. Each session of the pool reports its own first. No other may write meanwhile, nor
    have written lately, because a session reports up to ten seconds later: use `own_database`.
    """
    async with AsyncExitStack() as stack:
        for connection in [await stack.enter_async_context(db.connect()) for _ in range(CONNECTIONS)]:
            await connection.execute(text("SELECT pg_stat_force_next_flush()"))
            await connection.commit()
    async with db.connect() as connection:
        return {row.relname: row.n for row in await connection.execute(COUNTED, {"schema": schema})}


def written_since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Row versions written in between, of the tables that have any."""
    return {name: n - before.get(name, 0) for name, n in after.items() if n != before.get(name, 0)}
