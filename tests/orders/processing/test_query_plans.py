"""Query plans of the most frequent statements, planned when the statistics still describe empty tables."""

from sqlalchemy import text

from services.orders.checkout.idempotency import _FIND_IDEMPOTENCY_KEYS
from services.orders.order import leases

KEYS = {"scopes": ["POST /orders a"] * 50, "key_hashes": ["00"] * 50}
DUE = {"many": 8, "event_max": 8, "routine_max": 8, "lease": "me", "lease_s": 30.0}


async def plan(connection, statement, params):
    return "\n".join(await connection.scalars(text(f"EXPLAIN {statement}").bindparams(**params)))


async def test_idempotency_keys_are_found_by_index(shop):
    async with shop.state.db.connect() as connection:
        await connection.execute(text("TRUNCATE orders.idempotency"))
        await connection.execute(text("ANALYZE orders.idempotency"))
        assert "Index Cond: ((scope = q.scope) AND (key_hash = " in await plan(connection, _FIND_IDEMPOTENCY_KEYS, KEYS)
        await connection.execute(text("SET LOCAL enable_seqscan = on"))
        allowed = await plan(connection, _FIND_IDEMPOTENCY_KEYS, KEYS)
        assert "Seq Scan on idempotency " in allowed, "without the service's setting"
        await connection.rollback()


async def test_orders_are_read_by_index(shop):
    async with shop.state.db.connect() as connection:
        for statement, params in ((leases._READ_ORDERS, {"references": ["A"] * 50}), (leases._LEASE_DUE, DUE)):
            explained = await plan(connection, statement, params)
            assert "Index Cond: " in explained
            assert "Seq Scan" not in explained
