"""A Redis primary of a cluster, or one that sentinels watch, is killed during a sale, with its replica in step or a
second behind. Sales resume by themselves, no seat is sold twice, and no `join_seq` is given twice.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from onsale.local.binaries import find_redis
from onsale.local.engines import Engines
from services.inventory.redis_keys import Keys
from tests.drills.fleet import Fleet, running_fleet
from tests.drills.patient_fans import PatientFan
from tests.drills.queries import RESERVATIONS, count_is_at_least
from tests.support.engines.engine_groups import Cluster, Group, Node, SentinelGroup, memory_directory
from tests.support.engines.engines import database_numbers
from tests.support.programs import need
from tests.support.wait import wait_until

ROOM = {"rate_per_s": 20, "burst": 10, "max_active": 100, "claim_window_s": 120}
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 5000}]
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
    fleet: Fleet, redis_group: tuple[str, Group], database: asyncpg.Connection, recovery: Callable[..., None],
    behind: bool,
) -> None:  # fmt: skip
    what, group = redis_group
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    primary = await asyncio.to_thread(group.primary_of, Keys.of(event_id).meta)
    replicas = await asyncio.to_thread(group.replicas_of, primary)
    assert replicas, "there is no replica to promote"
    async with fleet.browser() as browser:
        sale = Sale(PatientFan(browser, event_id) for _ in range(FANS + UNREPLICATED + AFTER_FAILOVER + 1))
        selling = [asyncio.create_task(sale.sell_one()) for _ in range(FANS)]
        await wait_until(lambda: count_is_at_least(database, 3, RESERVATIONS, event_id), timeout_s=30)
        if behind:
            await asyncio.gather(*selling)
            await asyncio.to_thread(primary.cut_off_replicas)
            selling += [asyncio.create_task(sale.sell_one()) for _ in range(UNREPLICATED)]
            await asyncio.gather(*selling)
            await asyncio.to_thread(assert_replicas_are_behind, primary, replicas, event_id)
        thief = await sale.fans.pop().come_in()

        await asyncio.to_thread(primary.end, signal.SIGKILL)
        lost_s = time.monotonic()
        holding = asyncio.create_task(sale.hold_sold_seats(thief))
        resumed = [asyncio.create_task(sale.sell_one()) for _ in range(AFTER_FAILOVER)]
        await asyncio.wait(resumed, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.monotonic() - lost_s
        assert [order["status"] for order in await asyncio.gather(*selling, *resumed)].count("confirmed") == len(
            (*selling, *resumed)
        )
        sale.end.set()
        thief_statuses = await holding
        numbers = [fan.join_seq for fan in (*sale.buyers, thief)]
        assert len(set(numbers)) == len(numbers), "a number was given twice"
    assert 201 not in thief_statuses, "a seat was sold twice"
    assert took_s < RESUMED_WITHIN_S
    sold = await database.fetchval(f"{RESERVATIONS} AND status = 'confirmed'", event_id)
    assert sold == len(selling) + AFTER_FAILOVER
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=20, interval_s=0.3)
    await asyncio.to_thread(group.restore, primary)
    recovery(f"Redis primary killed ({what}; replica {'a second behind' if behind else 'in step'})", took_s,
             promise=PROMISE)  # fmt: skip


class Sale:
    """Fans who come one after the other, each for another seat."""

    def __init__(self, fans) -> None:
        self.fans = list(fans)
        self.buyers: list[PatientFan] = []
        self.sold: list[str] = []
        self.end = asyncio.Event()

    async def sell_one(self) -> dict:
        fan = self.fans.pop()
        self.buyers.append(fan)
        number = len(self.buyers)
        seat = f"A-{1 + number // 10}-{1 + number % 10}"
        await fan.come_in()
        order = await fan.buys(seats=[seat])
        self.sold.append(seat)
        return order

    async def hold_sold_seats(self, fan: PatientFan) -> list[int]:
        """Tries to hold sold seats again and again; the statuses of the answers."""
        answers: list[int] = []
        while not self.end.is_set():
            answers += [(await fan.reserve(seats=[seat])).status_code for seat in list(self.sold)]
            await asyncio.sleep(0.01)
        return answers


def assert_replicas_are_behind(primary: Node, replicas: list[Node], event_id: str) -> None:
    """Asserts that the replicas lack the last places given to fans."""
    counter = f"queue:{{{event_id}}}:room", "join_seq:0"
    for replica in replicas:
        if "cluster_enabled:1" in str(replica.execute("INFO cluster")):
            replica.execute("READONLY")
        assert int(replica.client.hget(*counter) or 0) < int(primary.client.hget(*counter))
