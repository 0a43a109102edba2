"""Databases for backup tests: rows that a copy easily loses, an empty database to restore into, all rows to compare."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from onsale.local.engines import Engines, with_driver
from tests.support.engines.engines import database_numbers, in_database, sql

SERVICES = ("orders", "inventory", "queue")
ROWS = """
INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds)
    VALUES ('h1', 'https://example.org', 's', '{order.confirmed}');
INSERT INTO orders."order" (reference, event_id, status) VALUES ('T1', NULL, 'tombstone');
INSERT INTO orders.money_entry
    (reference, kind, amount_minor, currency, provider, provider_ref, charge_ref, occurred_at)
    VALUES ('T1', 'charge', 100, 'EUR', 'sandbox', E'a\\\\b\\tc', 'ch', now());
INSERT INTO orders.outbox_batch (written_at, events) VALUES
    (now() - interval '2 hours', '[{"id": "0", "event_id": "e", "type": "order.created"}]'),
    (now(), '[{"id": "1", "event_id": "e", "type": "order.confirmed", "occurred_at_ms": 1,
        "after": {"reference": "T1"}}]');
INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body)
    VALUES ('h1', 'msg_1', 'order.confirmed', 'e', 'T1', '{}');
INSERT INTO orders.outbox_cursor (name, id) VALUES ('relay', 2), ('webhooks', 2)
    ON CONFLICT (name) DO UPDATE SET id = excluded.id;
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder)
    SELECT 'e', 1, 0, n, 'h' || n FROM generate_series(1, 9) n;
INSERT INTO inventory.seat (event_id, section_id, position, row, number) VALUES ('e', 'A', 0, '=Ä', 1);
"""
TABLES = """
    SELECT n.nspname || '.' || quote_ident(c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY($1) AND c.relkind = 'r' ORDER BY 1"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(url))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def empty_database(engines: Engines) -> AsyncIterator[str]:
    """The address of a database without tables; it is dropped afterwards."""
    name = f"empty_{next(database_numbers)}"
    await sql(engines, f"create database {name}")
    yield with_driver(in_database(engines, name))
    await sql(engines, f"drop database {name} with (force)")


async def all_rows(url: str) -> dict[str, list[str]]:
    """Every row of every table but the cursors of the outboxes."""
    async with connected(url) as database:
        found = {}
        for (table,) in await database.fetch(TABLES, list(SERVICES)):
            if not table.endswith(".outbox_cursor"):
                found[table] = [row[0] for row in await database.fetch(f"SELECT t::text FROM {table} t ORDER BY 1")]
    return found
