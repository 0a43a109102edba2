"""The whole suite with its event log in a NATS cluster of three: a node dies, and then the log is away for a minute.
Sales do not notice, and afterwards every fact is in the log once, each order's in the order in which they happened.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import nats
import orjson
import pytest
from nats.aio.client import Client

from onsale.local.engines import Engines
from onsale.local.ports import free_port
from tests.drills.crowd import PatientFan
from tests.drills.fleet import Fleet
from tests.support.engines.engines import fast_place, in_database, run_apart, sql
from tests.support.engines.logs import Nats
from tests.support.running.suite import bearer
from tests.support.wait import wait_until

AWAY_S, SLOW_S = 60.0, 15.0
ROOM = {"rate_per_s": 20, "burst": 4, "max_active": 200}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 500, "price_minor": 3000}]
BOUGHT = "SELECT count(*) FROM queue.place WHERE event_id = $1 AND bought_at IS NOT NULL"
WAITING = "SELECT count(*) FROM orders.outbox WHERE event_id = $1 AND published_at IS NULL"
WRITTEN = "SELECT body FROM orders.outbox WHERE event_id = $1 ORDER BY id"
PROMISE = "sales go on; 30 s / 0"

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Nats]]:
    place, ports = tmp_path_factory.mktemp("nats"), tuple(free_port() for _ in range(3))
    started = [Nats(place / f"n{n}", cluster_port=port, peers=ports) for n, port in enumerate(ports)]
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
    run_apart(sql(engines, f"create database drills_log template {migrated}"))
    hosts = ",".join(node.url.removeprefix("nats://") for node in nodes)
    with tempfile.TemporaryDirectory(prefix="onsale-fleet-", dir=fast_place()) as folder:
        place, environ = Path(folder) / "data", {"ONSALE_EVENT_LOG_URL": f"nats://{hosts}"}
        running = Fleet(place, in_database(engines, "drills_log"), environ=environ)
        try:
            yield running.start().wait_until_ready()
        finally:
            running.end()


@pytest.fixture
async def client(nodes: list[Nats]) -> AsyncIterator[Client]:
    """Somebody from outside who knows the log by its documents only."""
    async with asyncio.timeout(30):
        connected = await nats.connect([node.url for node in nodes], error_cb=_ignore, max_reconnect_attempts=-1)
    yield connected
    await connected.close()


async def _ignore(trouble: Exception) -> None:
    """Nodes are killed here."""


class Sales:
    """Fans who come one after another, each of whom buys a ticket and follows the order on its page."""

    def __init__(self, fleet: Fleet, event_id: str) -> None:
        self._fleet, self._event_id, self._ends = fleet, event_id, asyncio.Event()
        self.longest_s, self.confirmed = 0.0, 0

    async def go_on(self) -> None:
        async with self._fleet.browser() as browser:
            while not self._ends.is_set():
                await self._buy(await PatientFan(browser, self._event_id).come_in())

    async def _buy(self, fan: PatientFan) -> None:
        began_s = time.monotonic()
        reservation = await fan.hold(ga=[{"section_id": "GA1", "quantity": 1}])
        order = (await fan.order(reservation)).raise_for_status().json()
        path, headers = f"/orders/{order['reference']}/updates", bearer(order["order_token"])
        async with fan.browser.stream("GET", path, headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:") and orjson.loads(line[5:]).get("status") == "confirmed":
                    break
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.confirmed += 1

    def end(self) -> None:
        self._ends.set()


async def test_a_node_of_the_log_is_killed_in_the_middle_of_sales(
    fleet: Fleet, nodes: list[Nats], client: Client, ledger: asyncpg.Connection, recovery: Callable[..., None]
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=FLOOR)
    sales = Sales(fleet, event_id)
    selling = asyncio.create_task(sales.go_on())
    await wait_until(lambda: _bought(ledger, event_id, 3), timeout_s=30)
    stream = await client.jetstream().stream_info("ONSALE_ORDERS")
    assert stream.config.num_replicas == len(nodes)
    assert stream.cluster is not None
    killed_s, known = time.monotonic(), sales.confirmed
    async with all_away([node for node in nodes if node.home.name == stream.cluster.leader]):
        await wait_until(lambda: _bought(ledger, event_id, known + 3), timeout_s=60)
    recovery("leader of the event log killed, of three NATS: told again", time.monotonic() - killed_s, promise=PROMISE)
    sales.end()
    await selling
    await all_is_told(ledger, client, event_id)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def test_the_log_is_away_for_a_minute_in_the_middle_of_sales(
    fleet: Fleet, nodes: list[Nats], client: Client, ledger: asyncpg.Connection, recovery: Callable[..., None]
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=FLOOR)
    sales = Sales(fleet, event_id)
    selling = asyncio.create_task(sales.go_on())
    await wait_until(lambda: _bought(ledger, event_id, 3), timeout_s=30)
    async with all_away(nodes):
        back_s, before = time.monotonic() + AWAY_S, sales.confirmed
        await wait_until(lambda: time.monotonic() > back_s, timeout_s=2 * AWAY_S, interval_s=0.5)
        meanwhile, waiting = sales.confirmed - before, await ledger.fetchval(WAITING, event_id)
    back_s = time.monotonic()
    assert meanwhile >= 10, "sales went on"
    assert sales.longest_s < SLOW_S, "and were no slower: from the choice to the confirmed order"
    assert waiting >= 2 * meanwhile, "created, confirmed and fulfilled wait in the outbox"
    await wait_until(lambda: _bought(ledger, event_id, before + meanwhile), timeout_s=60)
    recovery("event log away 60 s: all is told", time.monotonic() - back_s, promise=PROMISE)
    sales.end()
    await selling
    await all_is_told(ledger, client, event_id)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)
    print(f"{meanwhile} orders meanwhile, {waiting} events waited, longest purchase {sales.longest_s:.2f} s")  # noqa: T201


@asynccontextmanager
async def all_away(nodes: list[Nats]) -> AsyncIterator[None]:
    for node in nodes:
        await asyncio.to_thread(node.end, signal.SIGKILL)
    try:
        yield
    finally:
        for node in nodes:
            node.start()


async def all_is_told(ledger: asyncpg.Connection, client: Client, event_id: str) -> None:
    """The log has what the outbox had: each event once, those of an order as they were written."""

    async def empty() -> bool:
        return bool(await ledger.fetchval(WAITING, event_id) == 0)

    await wait_until(empty, timeout_s=30)
    written = [orjson.loads(row[0]) for row in await ledger.fetch(WRITTEN, event_id)]
    pulled = await client.jetstream().pull_subscribe(f"onsale.orders.{event_id}.>", stream="ONSALE_ORDERS")
    told: list[dict[str, Any]] = []
    while len(told) < len(written):
        told += [orjson.loads(message.data) for message in await pulled.fetch(100, timeout=5)]
    assert _by_order(told) == _by_order(written)


def _by_order(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for event in events:
        ids.setdefault(event["aggregate"], []).append(event["id"])
    return ids


async def _bought(ledger: asyncpg.Connection, event_id: str, count: int) -> bool:
    return bool(await ledger.fetchval(BOUGHT, event_id) >= count)
