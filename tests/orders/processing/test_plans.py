"""What the planner makes of the hot statements while a sale's tables are as it last saw them: empty."""

from sqlalchemy import text

from services.orders.checkout import idempotency
from services.orders.order import leases

KEYS = {"scopes": ["POST /orders a"] * 50, "key_hashes": ["00"] * 50}
DUE = {"many": 8, "event_max": 8, "lease": "me", "lease_s": 30.0}


async def plan(connection, statement, bound):
    return "\n".join(await connection.scalars(text(f"EXPLAIN {statement}").bindparams(**bound)))


async def test_keys_are_looked_up_one_by_one_although_there_were_none(shop):
    async with shop.app.state.deps.db.connect() as connection:
        await connection.execute(text("TRUNCATE orders.idempotency"))
        await connection.execute(text("ANALYZE orders.idempotency"))
        assert "Index Cond: ((scope = q.scope) AND (key_hash = " in await plan(connection, idempotency._FIND, KEYS)
        await connection.execute(text("SET LOCAL enable_seqscan = on"))
        assert "Seq Scan on idempotency " in await plan(connection, idempotency._FIND, KEYS), "what the service forbids"
        await connection.rollback()


async def test_orders_are_never_read_from_end_to_end(shop):
    async with shop.app.state.deps.db.connect() as connection:
        for statement, bound in ((leases._LOAD, {"references": ["A"] * 50}), (leases._TAKE, DUE)):
            found = await plan(connection, statement, bound)
            assert "Index Cond: " in found
            assert "Seq Scan" not in found
