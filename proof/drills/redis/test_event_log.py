"""The event log is a NATS cluster of three nodes: its leader is killed, and later all nodes are away for a minute.
Sales continue meanwhile, and afterwards the log has every event once, those of an order in their order.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import asyncpg
import nats
import orjson
import pytest
from nats.aio.client import Client

from onsale.client import Fan
from onsale.local.engines import Engines
from onsale.local.ports import free_port
from proof.drills.fleet import Fleet, running_fleet
from proof.drills.sale import FLOOR, ONE_TICKET, Recorder, Sale, on_sale, until_count
from tests.support.engines.logs import Nats
from tests.support.wait import wait_until

AWAY_S, PURCHASE_MAX_S = 60.0, 15.0
BOUGHT = "SELECT count(*) FROM queue.place WHERE event_id = $1 AND bought_at IS NOT NULL"
EVENTS = """
    FROM orders.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
    WHERE e.event ->> 'event_id' = $1"""
RELAYED = "SELECT coalesce(max(id), 0) FROM orders.outbox_cursor WHERE name = 'relay'"
UNPUBLISHED = f"SELECT count(*) {EVENTS} AND b.id > ({RELAYED})"
WRITTEN = f"SELECT e.event {EVENTS} ORDER BY b.id, e.n"
PROMISE = "sales go on; 30 s / 0"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Nats]]:
    folder, ports = tmp_path_factory.mktemp("nats"), tuple(free_port() for _ in range(3))
    started = [Nats(folder / f"n{n}", cluster_port=port, peers=ports) for n, port in enumerate(ports)]
    for node in started:
        node.start()
    try:
        for node in started:
            node.wait()
        yield started
    finally:
        for node in started:
            node.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def fleet(engines: Engines, migrated: str, nodes: list[Nats]) -> Iterator[Fleet]:
    hosts = ",".join(node.url.removeprefix("nats://") for node in nodes)
    environ = {"ONSALE_EVENT_LOG_URL": f"nats://{hosts}"}
    with running_fleet(engines, migrated, "drills_log", environ=environ) as running:
        yield running


@pytest.fixture
async def client(nodes: list[Nats]) -> AsyncIterator[Client]:
    """A NATS client that shares no code with the suite."""
    async with asyncio.timeout(30):
        connected = await nats.connect([node.url for node in nodes], error_cb=_ignore, max_reconnect_attempts=-1)
    yield connected
    await connected.close()


async def _ignore(error: Exception) -> None:
    """Errors are expected: nodes are killed."""


class Purchases:
    """Fans who come one after another; each buys a ticket and reads the order's stream until it is confirmed."""

    def __init__(self, sale: Sale) -> None:
        self._sale, self._end = sale, asyncio.Event()
        self.longest_s, self.confirmed = 0.0, 0

    async def run(self) -> None:
        while not self._end.is_set():
            await self._buy(await self._sale.come_in())

    async def _buy(self, fan: Fan) -> None:
        began_s = time.monotonic()
        order = await fan.order(await fan.hold(ONE_TICKET))
        async with aclosing(fan.client.order_updates(order["reference"], token=order["order_token"])) as updates:
            async for update in updates:
                if update.data.get("status") == "confirmed":
                    break
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.confirmed += 1

    def end(self) -> None:
        self._end.set()


@asynccontextmanager
async def going_on(fleet: Fleet, database: asyncpg.Connection, client: Client) -> AsyncIterator[tuple[Sale, Purchases]]:
    """Purchases that go on; in the end every event must be in the log."""
    async with on_sale(fleet, sections=FLOOR) as sale:
        purchases = Purchases(sale)
        selling = asyncio.create_task(purchases.run())
        await until_count(database, 3, BOUGHT, sale.event_id)
        yield sale, purchases
        purchases.end()
        await selling
        await assert_all_events_are_published(database, client, sale.event_id)


async def test_sales_continue_and_no_event_is_lost_while_the_leading_node_is_killed(
    fleet: Fleet, nodes: list[Nats], client: Client, database: asyncpg.Connection, recovery: Recorder
) -> None:
    async with going_on(fleet, database, client) as (sale, purchases):
        stream = await client.jetstream().stream_info("ONSALE_ORDERS")
        assert stream.config.num_replicas == len(nodes)
        assert stream.cluster is not None
        killed_s, before = time.monotonic(), purchases.confirmed
        async with nodes_down([node for node in nodes if node.home.name == stream.cluster.leader]):
            await until_count(database, before + 3, BOUGHT, sale.event_id)
        what = "leader of the event log killed, of three NATS: told again"
        recovery(what, time.monotonic() - killed_s, promise=PROMISE)


async def test_sales_continue_and_no_event_is_lost_while_the_event_log_is_away_for_a_minute(
    fleet: Fleet, nodes: list[Nats], client: Client, database: asyncpg.Connection, recovery: Recorder
) -> None:
    async with going_on(fleet, database, client) as (sale, purchases):
        async with nodes_down(nodes):
            back_s, before = time.monotonic() + AWAY_S, purchases.confirmed
            await wait_until(lambda: time.monotonic() > back_s, timeout_s=2 * AWAY_S, interval_s=0.5)
            meanwhile, waiting = purchases.confirmed - before, await database.fetchval(UNPUBLISHED, sale.event_id)
        back_s = time.monotonic()
        assert meanwhile >= 10, "sales continued"
        assert purchases.longest_s < PURCHASE_MAX_S, "a purchase, from hold to confirmed order, was no slower"
        assert waiting >= 2 * meanwhile, "at least two events of each order wait in the outbox"
        await until_count(database, before + meanwhile, BOUGHT, sale.event_id)
        recovery("event log away 60 s: all is told", time.monotonic() - back_s, promise=PROMISE)


@asynccontextmanager
async def nodes_down(nodes: list[Nats]) -> AsyncIterator[None]:
    for node in nodes:
        await asyncio.to_thread(node.end, signal.SIGKILL)
    try:
        yield
    finally:
        for node in nodes:
            node.start()


async def assert_all_events_are_published(database: asyncpg.Connection, client: Client, event_id: str) -> None:
    """Asserts that the log has each event of the outbox once, those of an order in the order they were written."""

    async def empty() -> bool:
        return bool(await database.fetchval(UNPUBLISHED, event_id) == 0)

    await wait_until(empty, timeout_s=30)
    written = [orjson.loads(row[0]) for row in await database.fetch(WRITTEN, event_id)]
    pulled = await client.jetstream().pull_subscribe(f"onsale.orders.{event_id}.>", stream="ONSALE_ORDERS")
    published: list[dict[str, Any]] = []
    while len(published) < len(written):
        published += [orjson.loads(message.data) for message in await pulled.fetch(100, timeout=5)]
    assert _by_order(published) == _by_order(written)


def _by_order(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for event in events:
        ids.setdefault(event["aggregate"], []).append(event["id"])
    return ids
