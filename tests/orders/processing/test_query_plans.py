"""Query plans of the most frequent statements, planned when the statistics still describe empty tables."""

from sqlalchemy import text

from services.orders.store import store
from services.orders.worker import worker

KEYS = {"owner_ids": ["a"] * 50, "key_hashes": ["00"] * 50}
ORDERS = {"references": ["A"] * 50}
BEAT = {"owner": "me", "free": 1, "takeover_s": 5.0}
WAKE = {**ORDERS, "owner": "me", "sync": False, "take": False}


async def plan(connection, statement, params):
    return "\n".join(await connection.scalars(text(f"EXPLAIN {statement}").bindparams(**params)))


async def test_idempotency_keys_are_found_by_index(shop):
    async with shop.state.db.connect() as connection:
        await connection.execute(text('TRUNCATE orders."order"'))
        await connection.execute(text('ANALYZE orders."order"'))
        assert "Index Cond: ((owner_id = q.owner_id) AND (key_hash = " in await plan(connection, store._FIND_KEY, KEYS)
        await connection.execute(text("SET LOCAL enable_seqscan = on"))
        allowed = await plan(connection, store._FIND_KEY, KEYS)
        assert 'Seq Scan on "order" ' in allowed, "without the service's setting"
        await connection.rollback()


async def test_orders_are_read_woken_and_swept_by_index(shop):
    async with shop.state.db.connect() as connection:
        for statement, params in (
            (store._READ, ORDERS), (store._WAKE, WAKE), (worker._BEAT, BEAT), (worker._READ_WOKEN, {"owner": "me"}),
            (worker._TAKE_OVER, {"dead": ["a"], "owner": "me", "many": 8, "takeover_s": 5.0}),
        ):  # fmt: skip
            explained = await plan(connection, statement, params)
            assert "Index Cond: " in explained, explained
            assert "Seq Scan on open_order" not in explained, explained
            assert 'Seq Scan on "order"' not in explained, explained
