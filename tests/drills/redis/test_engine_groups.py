"""A primary of a cluster, or one that sentinels watch, dies in the middle of a sale; once with a replica that had not
heard the last second of it. Sales resume by themselves, nothing is sold twice, and no number is given twice.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from services.inventory.redis_keys import Keys
from tests.drills.crowd import PatientFan
from tests.drills.fleet import Fleet
from tests.support.engines.engine_groups import Cluster, Group, Node, Watched, in_memory, program
from tests.support.engines.engines import database_numbers, in_database, run_apart, sql
from tests.support.wait import wait_until

pytestmark = pytest.mark.drill
ROOM = {"rate_per_s": 20, "burst": 10, "max_active": 100, "claim_window_s": 120}
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 5000}]
FANS, UNHEARD, LATE = 8, 6, 4
RESERVED = "SELECT count(*) FROM inventory.reservation WHERE event_id = $1"
RESUMED_WITHIN_S = 10.0
PROMISE = "10 s / 0 (1 s with an asynchronous replica)"
KINDS: dict[str, Callable[[Path, Path], Group]] = {
    "cluster": partial(Cluster, replicas=True),
    "sentinels": partial(Watched, replicas=2, sentinels=3),
}


@pytest.fixture(scope="module", params=[(k, e) for k in KINDS for e in ("valkey", "redis-server")], ids="-".join)
def engine_group(request: pytest.FixtureRequest) -> Iterator[tuple[str, Group]]:
    kind, name = request.param
    engine = program(name)
    if engine is None:
        pytest.skip(f"{name} is not installed")
    with in_memory() as folder:
        running = KINDS[kind](engine, folder)
        try:
            yield f"{kind}, {name}", running
        finally:
            running.end()


@pytest.fixture(scope="module")
def group(engine_group: tuple[str, Group]) -> Group:
    return engine_group[1]


@pytest.fixture(scope="module")
def fleet(engines: Engines, migrated: str, group: Group) -> Iterator[Fleet]:
    name = f"group_{next(database_numbers)}"
    run_apart(sql(engines, f"create database {name} template {migrated}"))
    with in_memory() as folder:
        running = Fleet(folder / "data", in_database(engines, name), redis_url=group.url)
        try:
            yield running.start().wait_until_ready()
        finally:
            running.end()


@pytest.fixture
async def ledger(fleet: Fleet) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    yield connection
    await connection.close()


@pytest.mark.parametrize("behind", [False, True], ids=["in step", "a second behind"])
async def test_sales_resume_after_a_failover(
    fleet: Fleet, engine_group: tuple[str, Group], ledger: asyncpg.Connection, recovery: Callable[..., None],
    behind: bool,
) -> None:  # fmt: skip
    what, group = engine_group
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    primary = await asyncio.to_thread(group.primary_of, Keys.of(event_id).meta)
    replicas = await asyncio.to_thread(group.replicas_of, primary)
    assert replicas, "nobody could take over"
    async with fleet.browser() as browser:
        sale = Sale(PatientFan(browser, event_id) for _ in range(FANS + UNHEARD + LATE + 1))
        selling = [asyncio.create_task(sale.one_more()) for _ in range(FANS)]
        await wait_until(lambda: _more_than(ledger, event_id, 2), timeout_s=30)
        if behind:
            await asyncio.gather(*selling)
            await asyncio.to_thread(primary.cut_off_replicas)
            selling += [asyncio.create_task(sale.one_more()) for _ in range(UNHEARD)]
            await asyncio.gather(*selling)
            await asyncio.to_thread(lacks_the_last, primary, replicas, event_id)
        thief = await sale.fans.pop().come_in()

        await asyncio.to_thread(primary.end, signal.SIGKILL)
        lost_s = time.monotonic()
        stealing = asyncio.create_task(sale.steal(thief))
        resumed = [asyncio.create_task(sale.one_more()) for _ in range(LATE)]
        await asyncio.wait(resumed, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.monotonic() - lost_s
        assert [order["status"] for order in await asyncio.gather(*selling, *resumed)].count("confirmed") == len(
            (*selling, *resumed)
        )
        sale.over.set()
        stolen = await stealing
        numbers = [fan.join_seq for fan in (*sale.buyers, thief)]
        assert len(set(numbers)) == len(numbers), "a number was given twice"
    assert 201 not in stolen, "a seat was sold twice"
    assert took_s < RESUMED_WITHIN_S
    sold = await ledger.fetchval(f"{RESERVED} AND status = 'confirmed'", event_id)
    assert sold == len(selling) + LATE
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=20, interval_s=0.3)
    await asyncio.to_thread(group.mend, primary)
    recovery(f"Redis primary killed ({what}; replica {'a second behind' if behind else 'in step'})", took_s,
             promise=PROMISE)  # fmt: skip


class Sale:
    """Fans who come one after the other, each for a seat of his own."""

    def __init__(self, fans) -> None:
        self.fans = list(fans)
        self.buyers: list[PatientFan] = []
        self.sold: list[str] = []
        self.over = asyncio.Event()

    async def one_more(self) -> dict:
        fan = self.fans.pop()
        self.buyers.append(fan)
        number = len(self.buyers)
        seat = f"A-{1 + number // 10}-{1 + number % 10}"
        await fan.come_in()
        order = await fan.buys(seats=[seat])
        self.sold.append(seat)
        return order

    async def steal(self, thief: PatientFan) -> list[int]:
        """Wants what others have bought, again and again; the answers."""
        answers: list[int] = []
        while not self.over.is_set():
            answers += [(await thief.reserve(seats=[seat])).status_code for seat in list(self.sold)]
            await asyncio.sleep(0.01)
        return answers


def lacks_the_last(primary: Node, replicas: list[Node], event_id: str) -> None:
    """The replicas have not heard what fans were told."""
    counter = f"queue:{{{event_id}}}:room", "join_seq:0"
    for replica in replicas:
        if "cluster_enabled:1" in str(replica.execute("INFO cluster")):
            replica.execute("READONLY")
        assert int(replica.client.hget(*counter) or 0) < int(primary.client.hget(*counter))


async def _more_than(ledger: asyncpg.Connection, event_id: str, n: int) -> bool:
    return bool(await ledger.fetchval(RESERVED, event_id) > n)
