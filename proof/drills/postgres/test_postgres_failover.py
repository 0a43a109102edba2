"""PostgreSQL is lost or of no use during a sale: its primary goes, as a machine is lost, and the standby is promoted;
no connection is left; two transactions are in a deadlock.

A commit that waits for its synchronous standby stays invisible, even after the client has given up waiting.

Each service has a database of its own, one of them on another server, and uses no other.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from onsale.client import Fan
from onsale.client.connection import new_key
from onsale.client.fan_documents import OrderView, ReserveBody
from onsale.local.binaries import find_postgres
from onsale.local.engines import Engines, with_driver
from onsale.local.ports import HOST
from proof.drills.fleet import Fleet, migrate
from proof.drills.postgres.test_full_disk import take_all_connections
from proof.drills.postgres_pair import Postgres, PostgresPair, address, postgres_pair
from proof.drills.sale import FLOOR, INVENTORY_WAITS_FOR_A_LOCK, ONE_TICKET, Recorder, Sale, on_sale, retry, until_count
from shared.errors.problems import Unavailable
from shared.postgres import migrations
from shared.postgres.engine import connect, fenced
from shared.postgres.settings import PostgresSettings, Waits
from shared.routes import SERVICES_WITH_TABLES
from tests.support.engines.engines import fast_directory, in_database, sql
from tests.support.running.suite import bearer, client_of
from tests.support.wait import wait_until

FANS, BEFORE = 60, 15
PROMOTED_AFTER_S = 1.0  # until a failover manager promotes the standby


@asynccontextmanager
async def sale_on_pair(*, synchronous: bool, tmp_path: Path) -> AsyncIterator[tuple[Sale, PostgresPair]]:
    """A sale of a fleet on a PostgreSQL primary and its standby."""
    async with postgres_pair(synchronous=synchronous) as pair:
        for service in SERVICES_WITH_TABLES:
            await asyncio.to_thread(asyncio.run, migrations.upgrade(pair.url, service))
        fleet = Fleet(tmp_path / "data", pair.url).start()
        try:
            await asyncio.to_thread(fleet.wait_until_ready)
            async with on_sale(fleet, sections=FLOOR, clean_within_s=90) as sale:
                yield sale, pair
        finally:
            fleet.end()


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_with_a_synchronous_standby_nothing_acknowledged_is_lost(
    how: str, recovery: Recorder, tmp_path: Path
) -> None:
    """A frozen server is worse than a dead one: each statement under way waits until its timeout."""
    bought_s: list[float] = []
    statuses: Counter[int] = Counter()

    async def journey(fan: Fan) -> OrderView:
        await fan.come_in()
        order = await fan.buy(await fan.hold(ONE_TICKET))
        bought_s.append(time.monotonic())
        return order

    async def count_status(response: httpx.Response) -> None:
        statuses[response.status_code] += 1

    async with sale_on_pair(synchronous=True, tmp_path=tmp_path) as (sale, pair):
        sale.browser.event_hooks = {"response": [count_status]}
        fans = [sale.fan() for _ in range(FANS)]
        journeys = [asyncio.create_task(journey(fan)) for fan in fans]
        await wait_until(lambda: len(bought_s) >= BEFORE, timeout_s=60)
        (pair.primary.lose if how == "killed" else pair.primary.freeze)()
        lost_s = time.monotonic()
        await wait_until(lambda: time.monotonic() > lost_s + PROMOTED_AFTER_S)
        await pair.promote()
        orders = await asyncio.gather(*journeys)
        again_s = min(at_s for at_s in bought_s if at_s > lost_s + PROMOTED_AFTER_S) - lost_s
        assert 500 not in statuses, "failures are refusals with a problem, or no answer"
        assert {order["status"] for order in orders} == {"confirmed"}
        assert len({order["reference"] for order in orders}) == len({fan.join_seq for fan in fans}) == FANS
        confirmed = await pair.standby.query("SELECT reference FROM orders.order WHERE status = 'confirmed'")
        assert {row["reference"] for row in confirmed} == {order["reference"] for order in orders}
    what = f"PostgreSQL primary {how}, synchronous standby promoted after {PROMOTED_AFTER_S:g} s"
    recovery(what, again_s, promise="30 s / 0")


async def test_with_an_asynchronous_standby_the_settlement_finds_charges_of_lost_orders(
    recovery: Recorder, tmp_path: Path
) -> None:
    """Places, holds and orders of the last moments are gone. Their numbers are not given again, and the settlement
    finds their charges. Reconciliation corrects the stock; an operator's rebuild of the line frees slots that Redis
    granted and PostgreSQL lost.
    """
    async with sale_on_pair(synchronous=False, tmp_path=tmp_path) as (sale, pair), sale.fleet.operator() as operator:
        kept_order = await sale.buy(ONE_TICKET)
        waiting = await asyncio.gather(*(sale.come_in() for _ in range(3)))
        await wait_until(pair.standby_has_all, timeout_s=10)
        pair.standby.lose()
        lost = [await fan.buy(await fan.hold(ONE_TICKET)) for fan in waiting]
        late, key = sale.fan(), new_key()
        await late.join(key=key)

        pair.primary.lose()
        lost_s = time.monotonic()
        pair.standby.start()
        await wait_until(pair.standby.answers, timeout_s=20)
        await pair.promote()
        newcomer = await sale.come_in()
        assert (await newcomer.buy(await newcomer.hold(ONE_TICKET)))["status"] == "confirmed"
        again_s = time.monotonic() - lost_s
        assert newcomer.join_seq > late.join_seq, "a lost place's number is not given again"

        references = {row["reference"] for row in await pair.standby.query('SELECT reference FROM orders."order"')}
        assert kept_order["reference"] in references
        assert not references & {order["reference"] for order in lost}, "orders that the standby did not have are gone"
        today = datetime.now(UTC).date().isoformat()
        compared = await retry(lambda: settlement(operator, today))
        missing = {charge["reference"] for charge in compared["missing"]}
        assert missing >= {order["reference"] for order in lost} - references, "the settlement lists their charges"
        rebuild = {"reason": "an asynchronous standby was promoted"}
        assert (await operator.post(f"/admin/events/{sale.event_id}/room/rebuild", json=rebuild)).is_success
        sale.lost |= {name for order in lost for name in (order["reference"], order["reservation_id"])}
        sale.lost.add(f"place {late.join_seq} of")
        await late.join(key=key)
        assert late.join_seq > newcomer.join_seq, "a fan with a lost place joins at the end, with a new number"
    recovery(
        "PostgreSQL primary killed, asynchronous standby promoted", again_s, promise="30 s / what it had not",
        lost=f"{len(lost)} orders, 1 place of the moments its standby was behind",
    )  # fmt: skip


async def settlement(operator: httpx.AsyncClient, day: str) -> dict[str, Any]:
    answer = await operator.get("/admin/orders/settlement", params={"from": day, "to": day, "compare": "true"})
    assert answer.status_code == 200, answer.text
    return next(comparison for comparison in answer.json()["compared"] if comparison["provider"] == "sandbox")


LOCK_SECTION = "SELECT 1 FROM inventory.section WHERE event_id = $1 AND section_id = $2 FOR UPDATE"
SEAT_AND_GA: ReserveBody = {"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}


async def test_without_connections_requests_get_503_at_once_and_sales_resume_afterwards(
    fleet: Fleet, recovery: Recorder
) -> None:
    """Meanwhile each request gets 503 with `Retry-After` within seconds."""
    statuses: Counter[int] = Counter()
    slowest_s = 0.0
    async with on_sale(fleet) as sale, AsyncExitStack() as stack:
        fan = await sale.come_in()
        await take_all_connections(fleet.postgres_url, stack)
        path, of_fan = f"/events/{sale.event_id}", bearer(fan.admission)
        requests = (
            lambda: sale.browser.post(f"{path}/queue"),
            lambda: sale.browser.post(f"{path}/reservations", json={"seats": ["A-1-1"]}, headers=of_fan),
        )
        for request in requests * 3:
            began_s = time.monotonic()
            answer = await request()
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            statuses[answer.status_code] += 1
            assert "retry-after" in answer.headers, answer.text
        assert set(statuses) == {503}
        assert slowest_s < 10
        freed_s = time.monotonic()
        await stack.aclose()
        assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
        recovery("every connection of PostgreSQL taken, 503 meanwhile", time.monotonic() - freed_s, promise="20 s / 0")


async def test_a_transaction_that_loses_a_deadlock_is_repeated_in_the_same_request(
    fleet: Fleet, database: asyncpg.Connection, recovery: Recorder
) -> None:
    """A session of an operator locks two sections in the other order, and PostgreSQL ends the fan's transaction after a
    second.
    """
    operator = await asyncpg.connect(with_driver(fleet.postgres_url))
    async with on_sale(fleet) as sale:
        fan = await sale.come_in()
        fan.client = client_of(sale.browser)
        async with operator.transaction():
            await operator.execute("SET LOCAL deadlock_timeout = '30s'")
            await operator.execute(LOCK_SECTION, sale.event_id, "GA1")
            began_s = time.monotonic()
            holding = asyncio.create_task(fan.hold(SEAT_AND_GA))
            await until_count(database, 1, INVENTORY_WAITS_FOR_A_LOCK)
            await operator.execute(LOCK_SECTION, sale.event_id, "A")
        await holding
        recovery("two transactions in a deadlock", time.monotonic() - began_s, promise="5 s / 0")
    await operator.close()


ROWS = "SELECT n FROM place"


async def test_a_commit_whose_client_gives_up_is_invisible_until_the_standby_has_it() -> None:
    """A reader of it would acknowledge data that is lost with this primary. Commits of the pool, the driver, and in
    autocommit mode.
    """
    async with postgres_pair(synchronous=True) as pair:
        await pair.primary.query("CREATE TABLE place (n int)")
        waits = Waits(lock_timeout_ms=100, statement_timeout_ms=300, answer_timeout_s=0.5)
        db = connect(PostgresSettings(postgres_url=pair.url), name="test", waits=waits)
        pair.standby.lose()
        with pytest.raises(OperationalError):
            async with db.begin() as connection:
                await connection.execute(text("INSERT INTO place VALUES (1)"))
        with pytest.raises(Unavailable):
            async with fenced(db, "BEGIN") as driver:
                await driver.execute("INSERT INTO place VALUES (2)")
        with pytest.raises(OperationalError):
            async with db.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                await connection.execute(text("INSERT INTO place VALUES (3)"))
        assert await pair.primary.query(ROWS) == []
        pair.standby.start()

        async def all_are_visible() -> bool:
            return sorted(row["n"] for row in await pair.primary.query(ROWS)) == [1, 2, 3]

        await wait_until(all_are_visible, timeout_s=20)
        await db.dispose()


SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname IN ('queue', 'inventory', 'orders', 'console')"
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/nowhere"


@pytest.fixture
async def database_urls(engines: Engines, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The settings with each service's database: three on one server, orders on another."""
    with tempfile.TemporaryDirectory(prefix="onsale-own-", dir=fast_directory()) as folder:
        other_server = Postgres(Path(folder) / "other", find_postgres(os.environ, major=None))
        try:
            await other_server.create()
            await other_server.query("CREATE DATABASE own_orders", database="postgres")
            for service in ("queue", "inventory", "console"):
                await sql(engines, f"create database own_{service}")
            yield {
                "QUEUE_POSTGRES_URL": in_database(engines, "own_queue"),
                "INVENTORY_POSTGRES_URL": in_database(engines, "own_inventory"),
                "CONSOLE_POSTGRES_URL": in_database(engines, "own_console"),
                "ORDERS_POSTGRES_URL": address(f"{HOST}:{other_server.port}", "own_orders"),
            }
        finally:
            other_server.lose()


async def test_a_fan_buys_with_four_databases_on_two_servers(database_urls: dict[str, str], tmp_path: Path) -> None:
    await migrate(database_urls)
    for service in SERVICES_WITH_TABLES:
        connection = await asyncpg.connect(with_driver(database_urls[f"{service.upper()}_POSTGRES_URL"]))
        assert [row["nspname"] for row in await connection.fetch(SCHEMAS)] == [service]
        await connection.close()
    fleet = Fleet(tmp_path / "data", UNREACHABLE, environ=database_urls).start()
    try:
        async with on_sale(fleet.wait_until_ready()) as sale:
            assert (await sale.buy({"seats": ["A-1-1"]}))["status"] == "confirmed"
    finally:
        fleet.end()
