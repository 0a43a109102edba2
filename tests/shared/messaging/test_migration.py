"""The migration to batches: what waits is brought along, what processes of 0.1.0 write meanwhile is passed on."""

from typing import Any

import asyncpg
import pytest

from onsale.local.engines import with_driver
from shared.messaging.relay import Outbox
from shared.postgres.migrations import downgrade, upgrade
from shared.postgres.schema_version import revisions
from tests.shared.messaging.conftest import logged
from tests.shared.messaging.test_relay import Process, relay_all

pytestmark = pytest.mark.usefixtures("own_database")
INSERT = """
    INSERT INTO {0}.outbox (event_id, body, published_at)
    SELECT 'arena', jsonb_build_object('id', $1::text, 'type', 'order.created', 'event_id', 'arena',
        'occurred_at_ms', 1, 'aggregate', 'order', 'version', $1::text::int, 'after', '{{"reference": "R1"}}'::jsonb),
        now() - {1}::interval"""
RELEASED = "2026_11_26_0500"
WEBHOOK = """
    INSERT INTO orders.webhook_endpoint (endpoint_id, url, secret, kinds)
    VALUES ('ep', 'https://x', 'whsec_', '{order.created}')"""
AGO: dict[int, str | None] = {1: "1500 minutes", 2: "30 minutes", 3: None, 4: "2 minutes", 5: "10 seconds", 6: None}


def before(service: str) -> str:
    """The revision before the migration."""
    at = next(n for n, revision in enumerate(revisions(service)) if revision == AT[service])
    return revisions(service)[at - 1]


async def put_at(postgres_url: str, service: str, revision: str) -> None:
    """An empty schema of this revision. Not every later migration can be taken back."""
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        await connection.execute(f"DROP SCHEMA {service} CASCADE")
    finally:
        await connection.close()
    await upgrade(postgres_url, service, revision)


AT = {"queue": "0002", "inventory": "0004", "orders": "0007"}


@pytest.mark.parametrize("start", ["of the release", "just before"])
@pytest.mark.parametrize("service", AT)
async def test_unpublished_events_are_brought_along_in_their_order(
    service: str, start: str, postgres, postgres_url: str, log
) -> None:
    """Of those that are published the last day, after which the cursor stands; of the last minute it is not sure."""
    await put_at(postgres_url, service, RELEASED if start == "of the release" else before(service))
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        for number, ago in AGO.items():
            await connection.execute(INSERT.format(service, "NULL" if ago is None else f"'{ago}'"), str(number))
        if service == "orders":
            await connection.execute(WEBHOOK)
        await upgrade(postgres_url, service, AT[service])
        await relay_all(Process(Outbox(postgres, log, service)))
        assert await logged(log) == [3, 5, 6]
        kept = f"SELECT e -> 'version' FROM {service}.outbox_batch, jsonb_array_elements(events) AS e ORDER BY id"
        assert [int(row[0]) for row in await connection.fetch(kept)] == [2, 4, 3, 5, 6]
        await connection.execute(INSERT.format(service, "NULL"), "7")  # by a process of 0.1.0
        await relay_all(Process(Outbox(postgres, log, service)))
        assert await logged(log) == [3, 5, 6, 7]
        assert await connection.fetchval(f"SELECT count(*) FROM {service}.outbox WHERE published_at IS NULL") == 0
        if service == "orders":
            messages = await connection.fetch("SELECT message_id FROM orders.webhook_delivery")
            assert [row[0] for row in messages] == ["msg_7"], "the others had theirs"
    finally:
        await connection.close()


@pytest.mark.parametrize("service", AT)
async def test_unpublished_events_go_back_with_the_tables(service: str, postgres_url: str) -> None:
    await put_at(postgres_url, service, AT[service])
    connection: Any = await asyncpg.connect(with_driver(postgres_url))
    try:
        batch = f"INSERT INTO {service}.outbox_batch (events) VALUES ($1)"
        for number in (1, 2):
            await connection.execute(batch, f'[{{"id": "{number}", "event_id": "arena", "after": {{}}}}]')
        await connection.execute(f"UPDATE {service}.outbox_cursor SET id = 1")
        await downgrade(postgres_url, service, before(service))
        rows = await connection.fetch(f"SELECT event_id, body ->> 'id', published_at FROM {service}.outbox")
        assert [tuple(row) for row in rows] == [("arena", "2", None)]
    finally:
        await connection.close()
