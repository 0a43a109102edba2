"""A Redis primary of a cluster, or one that sentinels watch, is killed during a sale, with its replica in step or a
second behind. Sales resume by themselves, no seat is sold twice, and no `join_seq` is given twice.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from onsale.client import Fan, Problem
from onsale.client.fan_documents import OrderView
from onsale.local.binaries import find_redis
from onsale.local.engines import Engines
from proof.drills.fleet import Fleet, running_fleet
from proof.drills.sale import RESERVATIONS, SEATS, Recorder, on_sale, seat, until_count
from services.inventory.redis_keys import Keys
from tests.support.engines.engine_groups import Cluster, Group, Node, SentinelGroup, memory_directory
from tests.support.engines.engines import database_numbers
from tests.support.programs import need
from tests.support.running.suite import client_of

FANS, UNREPLICATED, AFTER_FAILOVER = 8, 6, 4
RESUMED_WITHIN_S = 10.0
PROMISE = "10 s / 0 (1 s with an asynchronous replica)"
KINDS: dict[str, Callable[[Path, Path], Group]] = {
    "cluster": partial(Cluster, replicas=True),
    "sentinels": partial(SentinelGroup, replicas=2, sentinels=3),
}


@pytest.fixture(scope="module", params=[(k, e) for k in KINDS for e in ("valkey", "redis-server")], ids="-".join)
def redis_group(request: pytest.FixtureRequest) -> Iterator[tuple[str, Group]]:
    kind, name = request.param
    server = find_redis({}) if name == "valkey" else Path(need(name))
    with memory_directory() as folder:
        running = KINDS[kind](server, folder)
        try:
            yield f"{kind}, {name}", running
        finally:
            running.end()


@pytest.fixture(scope="module")
def group(redis_group: tuple[str, Group]) -> Group:
    return redis_group[1]


@pytest.fixture(scope="module")
def fleet(engines: Engines, migrated: str, group: Group) -> Iterator[Fleet]:
    name = f"group_{next(database_numbers)}"
    with running_fleet(engines, migrated, name, redis_url=group.url) as running:
        yield running


@pytest.mark.parametrize("behind", [False, True], ids=["in step", "a second behind"])
async def test_sales_resume_after_a_redis_failover(
    fleet: Fleet, redis_group: tuple[str, Group], database: asyncpg.Connection, recovery: Recorder,
    behind: bool,
) -> None:  # fmt: skip
    what, group = redis_group
    async with on_sale(fleet, sections=SEATS) as sale:
        primary = await asyncio.to_thread(group.primary_of, Keys.of(sale.event_id).meta)
        replicas = await asyncio.to_thread(group.replicas_of, primary)
        assert replicas, "there is no replica to promote"
        buyers: list[Fan] = []
        sold: list[str] = []

        async def sell_one() -> OrderView:
            """A new fan buys another seat."""
            buyers.append(fan := sale.fan())
            own = seat(len(buyers))
            await fan.come_in()
            order = await fan.buy(await fan.hold({"seats": [own]}))
            sold.append(own)
            return order

        async def hold_sold_seats(end: asyncio.Event) -> list[str]:
            """Tries to hold sold seats again and again; those that were held after all."""
            stolen: list[str] = []
            while not end.is_set():
                for taken in sold:
                    with suppress(Problem):
                        stolen += (await thief.hold({"seats": [taken]}))["seats"]
                await asyncio.sleep(0.01)
            return stolen

        selling = [asyncio.create_task(sell_one()) for _ in range(FANS)]
        await until_count(database, 3, RESERVATIONS, sale.event_id)
        if behind:
            await asyncio.gather(*selling)
            await asyncio.to_thread(primary.cut_off_replicas)
            selling += [asyncio.create_task(sell_one()) for _ in range(UNREPLICATED)]
            await asyncio.gather(*selling)
            await asyncio.to_thread(assert_replicas_are_behind, primary, replicas, sale.event_id)
        thief, end = await sale.come_in(), asyncio.Event()
        thief.client = client_of(sale.browser)

        await asyncio.to_thread(primary.end, signal.SIGKILL)
        lost_s = time.monotonic()
        holding = asyncio.create_task(hold_sold_seats(end))
        resumed = [asyncio.create_task(sell_one()) for _ in range(AFTER_FAILOVER)]
        await asyncio.wait(resumed, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.monotonic() - lost_s
        assert {order["status"] for order in await asyncio.gather(*selling, *resumed)} == {"confirmed"}
        end.set()
        assert not await holding, "a seat was sold twice"
        numbers = [fan.join_seq for fan in (*buyers, thief)]
        assert len(set(numbers)) == len(numbers), "a number was given twice"
        assert took_s < RESUMED_WITHIN_S
        confirmed = await database.fetchval(f"{RESERVATIONS} AND status = 'confirmed'", sale.event_id)
        assert confirmed == len(buyers)
    await asyncio.to_thread(group.restore, primary)
    recovery(f"Redis primary killed ({what}; replica {'a second behind' if behind else 'in step'})", took_s,
             promise=PROMISE)  # fmt: skip


def assert_replicas_are_behind(primary: Node, replicas: list[Node], event_id: str) -> None:
    """Asserts that the replicas lack the last places given to fans."""
    counter = f"queue:{{{event_id}}}:room", "join_seq:0"
    for replica in replicas:
        if "cluster_enabled:1" in str(replica.execute("INFO cluster")):
            replica.execute("READONLY")
        assert int(replica.client.hget(*counter) or 0) < int(primary.client.hget(*counter))
