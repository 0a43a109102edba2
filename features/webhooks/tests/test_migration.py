"""The migration from the trigger to the reader: each event has its delivery once."""

from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from features.webhooks.orders.dispatcher import queue_deliveries
from onsale.local.engines import with_driver
from shared.messaging.relay import EventReader, Relay
from shared.postgres.migrations import upgrade

ENDPOINT = """
    INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds)
    VALUES ('ep', 'https://x', 'whsec_', '{order.created}')"""
EVENT = """
    INSERT INTO orders.outbox_batch (events) VALUES (jsonb_build_array(jsonb_build_object(
        'id', $1::text, 'type', 'order.created', 'event_id', 'arena', 'occurred_at_ms', 1, 'version', 1,
        'after', '{"reference": "R1"}'::jsonb)))"""


@pytest.mark.usefixtures("own_database")
async def test_events_before_and_after_the_migration_are_queued_once(postgres: AsyncEngine, postgres_url: str) -> None:
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        await connection.execute("DROP SCHEMA orders CASCADE")
        await upgrade(postgres_url, "orders", "0010")
        await connection.execute(EVENT, "none")  # no endpoint yet
        await connection.execute(ENDPOINT)
        await connection.execute(EVENT, "before")
        await upgrade(postgres_url, "orders", "0011")
        await connection.execute(EVENT, "after")
        reader = EventReader(postgres, "orders", "webhooks", queue_deliveries)
        await reader.begin()
        for _ in range(2):
            await Relay(reader).run()
            await reader.work()
        messages = await connection.fetch("SELECT message_id, attempts FROM orders.webhook_delivery ORDER BY id")
        assert [tuple(row) for row in messages] == [("msg_before", 0), ("msg_after", 0)]
    finally:
        await connection.close()
