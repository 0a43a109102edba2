"""Failover to a replica that lags: it takes over the address, and seats it still shows as free are not sold again."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis.asyncio

from onsale.local.binaries import find_redis
from onsale.local.ports import HOST, free_port
from onsale.local.supervisor import die_with_parent
from services.inventory.redis_keys import Keys
from tests.inventory.actions import sell
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
SEATS = [f"A-1-{n}" for n in range(1, 6)]


class Valkey:
    """One Valkey process without persistence."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        options = {"port": str(self.port), "bind": HOST, "dir": str(home), "save": "", "repl-diskless-sync-delay": "0"}
        flat = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [str(find_redis(os.environ)), *flat], stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )  # fmt: skip
        self.client = redis.asyncio.Redis(host=HOST, port=self.port)

    async def answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except redis.exceptions.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def valkey(home: Path) -> Iterator[Valkey]:
    home.mkdir()
    process = Valkey(home)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Valkey, Valkey]]:
    """A primary and its replica."""
    with valkey(tmp_path / "primary") as primary, valkey(tmp_path / "replica") as replica:
        for process in (primary, replica):
            await wait_until(process.answers)
        await replica.client.replicaof(HOST, primary.port)
        yield primary, replica
        await primary.client.aclose()
        await replica.client.aclose()


async def take_over(primary: Valkey, replica: Valkey) -> None:
    """The primary dies, and the replica is promoted and answers at its address."""
    primary.kill()
    await replica.client.replicaof("NO", "ONE")
    await replica.client.config_set("port", str(primary.port))


async def test_a_promoted_lagging_replica_sells_nothing_twice(pair: tuple[Valkey, Valkey], postgres_url: str) -> None:
    primary, replica = pair
    settings = settings_of(f"redis://{HOST}:{primary.port}/0", postgres_url)
    async for inventory in start(settings):
        assert (await inventory.put(event_file())).status_code == 200
        await inventory.until_ready()

        async def replicated() -> bool:
            return await replica.client.hget(KEYS.meta, "ready") == b"1"

        await wait_until(replicated)
        await replica.client.replicaof(HOST, free_port())  # cuts the replication link: from here on the replica lags
        for n, seat in enumerate(SEATS[:4]):
            await sell(inventory, f"buyer-{n}", seats=[seat], ga_section="GA1", ga_quantity=2)
        held = await inventory.hold("holder", seats=[SEATS[4]])
        assert (await replica.client.getrange(KEYS.map + "A", 0, 4)) == b"....."
        answers = await _request_during_failover(inventory, primary, replica)
        assert 201 not in answers, "the replica shows all five seats as free"
        assert set(answers) <= {409, 503}
        await wait_until(partial(_sells, inventory))
        assert (await inventory.fan_request("GET", held, "holder")).json()["status"] == "pending_payment"
        assert await inventory.counts("GA1") == (12, 0)
        assert await inventory.violations() == []


async def _sells(inventory: Inventory) -> bool:
    """Whether the sale goes on; during a rebuild the answer is 503 with Retry-After."""
    return (await inventory.reserve("later", seats=["A-2-1"])).status_code == 201


async def _request_during_failover(inventory: Inventory, primary: Valkey, replica: Valkey) -> list[int]:
    """Fans request the taken seats before, during and after the failover; returns the statuses of the answers."""
    answers: list[int] = []
    stopped = asyncio.Event()

    async def fan(n: int) -> None:
        while not stopped.is_set():
            answers.append((await inventory.reserve(f"fan-{n}", seats=[SEATS[n % 5]])).status_code)

    fans = [asyncio.create_task(fan(n)) for n in range(10)]
    await wait_until(lambda: len(answers) > 20)
    await take_over(primary, replica)
    began_s = time.monotonic()

    async def recovered() -> bool:
        """The promoted replica is rebuilt, and a fan is refused by its stock."""
        return await replica.client.getrange(KEYS.map + "A", 0, 4) == b"ssssh" and answers[-1] == 409

    await wait_until(recovered)
    took_s = time.monotonic() - began_s
    answered = len(answers)
    await wait_until(lambda: len(answers) > answered + 20)
    stopped.set()
    await asyncio.gather(*fans)
    assert took_s < 10, "about half a second on an idle machine"
    return answers
