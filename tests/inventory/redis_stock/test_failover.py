"""Failover to a replica that lags: it takes over the address, and seats it still shows as free are not sold again."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST
from services.inventory.redis_keys import Keys
from tests.inventory.actions import sell
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.support.engines.engine_groups import CONFIGURATION, Group, Node, memory_directory
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
SEATS = [f"A-1-{n}" for n in range(1, 6)]


@pytest.fixture
def pair() -> Iterator[tuple[Node, Node]]:
    """A primary and its replica."""
    with memory_directory() as folder:
        group = Group([Node(find_redis(os.environ), folder, CONFIGURATION) for _ in range(2)])
        primary, replica = group.nodes
        replica.execute("REPLICAOF", HOST, primary.port)
        try:
            yield primary, replica
        finally:
            group.end()


def take_over(primary: Node, replica: Node) -> None:
    """The primary dies, and the replica is promoted and answers at its address."""
    primary.end(signal.SIGKILL)
    replica.execute("REPLICAOF", "NO", "ONE")
    replica.execute("CONFIG", "SET", "port", primary.port)


def first_row(node: Node) -> str:
    return str(node.client.getrange(KEYS.map + "A", 0, 4))


async def test_a_promoted_lagging_replica_sells_nothing_twice(pair: tuple[Node, Node], postgres_url: str) -> None:
    primary, replica = pair
    settings = settings_of(f"redis://{HOST}:{primary.port}/0", postgres_url)
    async for inventory in start(settings):
        assert (await inventory.put(event_file())).status_code == 200
        await inventory.until_ready()
        await wait_until(lambda: replica.client.hget(KEYS.meta, "ready") == "1")
        primary.cut_off_replicas()  # from here on the replica lags
        for n, seat in enumerate(SEATS[:4]):
            await sell(inventory, f"buyer-{n}", seats=[seat], ga_section="GA1", ga_quantity=2)
        held = await inventory.hold("holder", seats=[SEATS[4]])
        assert first_row(replica) == "....."
        answers = await _request_during_failover(inventory, primary, replica)
        assert 201 not in answers, "the replica shows all five seats as free"
        assert set(answers) <= {409, 503}
        await wait_until(partial(_sells, inventory))
        assert (await inventory.fan_request("GET", held, "holder")).json()["status"] == "pending_payment"
        await wait_until(partial(_counts_are, inventory, (12, 0)))  # a frame is up to a quarter of a second old
        assert await inventory.violations() == []


async def _counts_are(inventory: Inventory, expected: tuple[int, int]) -> bool:
    return await inventory.counts("GA1") == expected


async def _sells(inventory: Inventory) -> bool:
    """Whether the sale goes on; during a rebuild the answer is 503 with Retry-After."""
    return (await inventory.reserve("later", seats=["A-2-1"])).status_code == 201


async def _request_during_failover(inventory: Inventory, primary: Node, replica: Node) -> list[int]:
    """Fans request the taken seats before, during and after the failover; returns the statuses of the answers."""
    answers: list[int] = []
    stopped = asyncio.Event()

    async def fan(n: int) -> None:
        while not stopped.is_set():
            answers.append((await inventory.reserve(f"fan-{n}", seats=[SEATS[n % 5]])).status_code)

    fans = [asyncio.create_task(fan(n)) for n in range(10)]
    await wait_until(lambda: len(answers) > 20)
    take_over(primary, replica)
    began_s = time.monotonic()
    await wait_until(lambda: first_row(replica) == "ssssh" and answers[-1] == 409)  # rebuilt, and refuses a fan
    took_s = time.monotonic() - began_s
    answered = len(answers)
    await wait_until(lambda: len(answers) > answered + 20)
    stopped.set()
    await asyncio.gather(*fans)
    assert took_s < 10, "about half a second on an idle machine"
    return answers
