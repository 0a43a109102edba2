"""PostgreSQL runs but cannot be used: no connection is left, or two transactions are in a deadlock."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack

import asyncpg

from onsale.client.fan_documents import ReserveBody
from onsale.local.engines import with_driver
from proof.drills.fleet import Fleet
from proof.drills.postgres_faults import take_all_connections
from proof.drills.sale import INVENTORY_WAITS_FOR_A_LOCK, Recorder, on_sale, until_count
from tests.support.running.fans import client_of
from tests.support.running.suite import bearer

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
