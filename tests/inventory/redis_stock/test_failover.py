"""Failover to a replica that had fallen behind: it takes over the address; nobody buys what it still thinks free."""

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
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.inventory.selling import sold
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
SEATS = [f"A-1-{n}" for n in range(1, 6)]


class Valkey:
    """One engine process in memory; `port` moves when it takes over another's address."""

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
    db = Valkey(home)
    try:
        yield db
    finally:
        db.kill()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Valkey, Valkey]]:
    """A primary and its replica, in step."""
    with valkey(tmp_path / "primary") as primary, valkey(tmp_path / "replica") as replica:
        for db in (primary, replica):
            await wait_until(db.answers)
        await replica.client.replicaof(HOST, primary.port)
        yield primary, replica
        await primary.client.aclose()
        await replica.client.aclose()


async def take_over(primary: Valkey, replica: Valkey) -> None:
    """The primary dies; the replica is promoted and answers at its address from now on."""
    primary.kill()
    await replica.client.replicaof("NO", "ONE")
    await replica.client.config_set("port", str(primary.port))


async def test_nobody_buys_what_a_lagging_replica_still_thinks_free(
    pair: tuple[Valkey, Valkey], postgres_url: str
) -> None:
    primary, replica = pair
    settings = settings_of(f"redis://{HOST}:{primary.port}/0", postgres_url)
    async for inventory in start(settings):
        assert (await inventory.put(event_file())).status_code == 200
        await inventory.ready()

        async def in_step() -> bool:
            return await replica.client.hget(KEYS.meta, "ready") == b"1"

        await wait_until(in_step)
        await replica.client.replicaof(HOST, free_port())  # its link is cut: from here on it falls behind
        for n, seat in enumerate(SEATS[:4]):
            await sold(inventory, f"buyer-{n}", seats=[seat], ga_section="GA1", ga_quantity=2)
        held = (await inventory.reserve("holder", seats=[SEATS[4]])).json()["reservation_id"]
        assert (await replica.client.getrange(KEYS.map + "A", 0, 4)) == b"....."
        answers = await _storm_through(inventory, primary, replica)
        assert 201 not in answers, "the replica thinks all five free"
        assert set(answers) <= {409, 503}
        await wait_until(partial(_sells, inventory))
        assert (await inventory.mine("GET", held, "holder")).json()["status"] == "pending_payment"
        assert await inventory.left("GA1") == (12, 0)
        assert await inventory.broken() == []


async def _sells(inventory: Inventory) -> bool:
    """Redis that is being filled once more says 503 and Retry-After meanwhile."""
    return (await inventory.reserve("later", seats=["A-2-1"])).status_code == 201


async def _storm_through(inventory: Inventory, primary: Valkey, replica: Valkey) -> list[int]:
    """Fans want the gone seats before, while and after the replica takes over; sales are back by themselves."""
    answers: list[int] = []
    over = asyncio.Event()

    async def fan(n: int) -> None:
        while not over.is_set():
            answers.append((await inventory.reserve(f"fan-{n}", seats=[SEATS[n % 5]])).status_code)

    fans = [asyncio.create_task(fan(n)) for n in range(10)]
    await wait_until(lambda: len(answers) > 20)
    await take_over(primary, replica)
    began_s = time.monotonic()

    async def knows() -> bool:
        """By its own answer: the promoted one has been filled anew, and a fan is refused by what it knows."""
        return await replica.client.getrange(KEYS.map + "A", 0, 4) == b"ssssh" and answers[-1] == 409

    await wait_until(knows)
    took_s = time.monotonic() - began_s
    answered = len(answers)
    await wait_until(lambda: len(answers) > answered + 20)
    over.set()
    await asyncio.gather(*fans)
    assert took_s < 10, "about half a second when nobody else uses the machine"
    return answers
