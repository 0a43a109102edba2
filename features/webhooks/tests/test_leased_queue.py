"""The dispatcher's table: its loop does bounded work, wakes up, and leaves rows to their leases at the end; after the
migration each event has its delivery once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from features.webhooks.orders.dispatcher import FETCH_S, QUIET_S, SOON_S, WebhookDispatcher, queue_deliveries
from onsale.local.engines import with_driver
from shared.concurrency.background import Loops, Quiet
from shared.messaging.relay import EventReader, Relay
from shared.postgres.migrations import upgrade
from tests.support.wait import wait_until


class Rows(WebhookDispatcher):
    """Due rows in memory; a row is on its way until `finish` is set."""

    def __init__(self, count: int, *, workers_max: int = 3) -> None:
        super().__init__(MagicMock(), MagicMock(), workers_max=workers_max, pauses_s=())
        self.due = list(range(count))
        self.leased: list[int] = []
        self.asked_for: list[int] = []
        self.at_once = self.at_once_max = 0
        self.finish = asyncio.Event()

    async def _fetch(self, many: int) -> Any:
        self.asked_for.append(many)
        leased, self.due = self.due[:many], self.due[many:]
        self.leased += leased
        return leased

    async def _deliver(self, _: Any) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            await self.finish.wait()
        finally:
            self.at_once -= 1


@asynccontextmanager
async def running(rows: Rows, *, poll_s: float = 3600) -> AsyncIterator[Rows]:
    async with Loops("orders") as loops:
        loops.keep(rows.run, name="test")
        loops.every(poll_s, rows.poll, name="test polls")
        yield rows


async def test_as_many_rows_are_in_work_as_there_are_workers_and_the_next_follow_at_once() -> None:
    async with running(rows := Rows(10)) as queue:
        await wait_until(lambda: len(queue.rows) == 3)
        assert rows.leased == [0, 1, 2]
        rows.finish.set()
        await wait_until(lambda: len(rows.leased) == 10 and not queue.rows)
        assert rows.at_once_max == 3


async def test_a_wake_up_finds_rows_that_became_due() -> None:
    async with running(rows := Rows(0)) as queue:
        await wait_until(lambda: rows.asked_for == [3])
        rows.due = [7]
        queue.wake()
        await wait_until(lambda: rows.at_once == 1)
        assert list[object](queue.rows) == [7]
    assert rows.at_once == 0, "work is cancelled with the loop; the lease ends by itself"


async def test_many_wake_ups_at_once_are_one_look_unless_all_workers_are_busy() -> None:
    async with running(rows := Rows(0)) as queue:
        await wait_until(lambda: rows.asked_for == [3])
        for _ in range(20):
            queue.wake()
            await asyncio.sleep(0.001)
        await asyncio.sleep(FETCH_S)
        assert len(rows.asked_for) <= 3, "each millisecond would be twenty"
    rows = Rows(20, workers_max=1)
    rows.finish.set()
    started_s = asyncio.get_running_loop().time()
    async with running(rows):
        await wait_until(lambda: not rows.due)
    assert asyncio.get_running_loop().time() - started_s < 10 * FETCH_S


async def test_without_a_wake_up_rows_are_found_by_the_poll() -> None:
    async with running(rows := Rows(0, workers_max=1), poll_s=0.02) as queue:
        await wait_until(lambda: len(rows.asked_for) > 2)
        rows.due = [1]
        await wait_until(lambda: list[object](queue.rows) == [1])


async def test_polls_are_rare_while_nothing_is_in_work_and_nothing_becomes_due_soon() -> None:
    class Looking(Rows):
        async def _fetch(self, many: int) -> Any:
            self.has_soon = bool(self.due)
            return await super()._fetch(many)

    rows = queue = Looking(0)

    async def poll() -> Quiet | None:
        looks = len(rows.asked_for)
        found = await queue.poll()
        await wait_until(lambda: len(rows.asked_for) > looks)
        return found

    async with Loops("orders") as loops:
        loops.keep(queue.run, name="test")
        await wait_until(lambda: rows.asked_for)
        assert await poll() == Quiet(QUIET_S)
        rows.due = [1, 2]
        assert await poll() == Quiet(QUIET_S), "by what the look before has found"
        assert await poll() is None, "one is in work"
        rows.finish.set()
        await wait_until(lambda: rows.leased == [1, 2] and not queue.rows)
        queue.has_soon = True
        assert await poll() is None
        assert await poll() == Quiet(QUIET_S)
    assert SOON_S > QUIET_S, "each poll sees what becomes due before the next"


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
        await upgrade(postgres_url, "orders")
        reader = EventReader(postgres, "orders", "webhooks", queue_deliveries)
        await reader.begin()
        for _ in range(2):
            await Relay(reader).run()
            await reader.work()
        messages = await connection.fetch("SELECT message_id, attempts FROM orders.webhook_delivery ORDER BY id")
        assert [tuple(row) for row in messages] == [("msg_before", 0), ("msg_after", 0)]
    finally:
        await connection.close()
