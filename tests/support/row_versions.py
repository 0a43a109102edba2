"""Counts the row versions that statements wrote, as PostgreSQL counts them."""

from contextlib import AsyncExitStack

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

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
