"""Plans of the hot statements while the planner's statistics still say that the tables are empty."""

from sqlalchemy import text

from services.orders.checkout.idempotency import _FIND_IDEMPOTENCY_KEYS
from services.orders.order import leases

KEYS = {"scopes": ["POST /orders a"] * 50, "key_hashes": ["00"] * 50}
DUE = {"many": 8, "event_max": 8, "lease": "me", "lease_s": 30.0}


async def plan(connection, statement, bound):
    return "\n".join(await connection.scalars(text(f"EXPLAIN {statement}").bindparams(**bound)))


async def test_keys_are_looked_up_one_by_one_although_there_were_none(shop):
    async with shop.app.state.deps.db.connect() as connection:
        await connection.execute(text("TRUNCATE orders.idempotency"))
        await connection.execute(text("ANALYZE orders.idempotency"))
        assert "Index Cond: ((scope = q.scope) AND (key_hash = " in await plan(connection, _FIND_IDEMPOTENCY_KEYS, KEYS)
        await connection.execute(text("SET LOCAL enable_seqscan = on"))
        assert "Seq Scan on idempotency " in await plan(connection, _FIND_IDEMPOTENCY_KEYS, KEYS), (
            "what the service forbids"
        )
        await connection.rollback()


async def test_orders_are_never_read_from_end_to_end(shop):
    async with shop.app.state.deps.db.connect() as connection:
        for statement, bound in ((leases._READ_ORDERS, {"references": ["A"] * 50}), (leases._LEASE_DUE, DUE)):
            found = await plan(connection, statement, bound)
            assert "Index Cond: " in found
            assert "Seq Scan" not in found
