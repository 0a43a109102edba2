"""The ledger is there and cannot be used: no connection is to be had, or two transactions wait for each other."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from onsale.local.engines import with_driver
from tests.drills.crowd import PatientFan
from tests.drills.fleet import Fleet
from tests.support.wait import wait_until

pytestmark = pytest.mark.drill
OURS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onsale-%'"
WAITERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND wait_event_type = 'Lock'"
)
LOCK = "SELECT 1 FROM inventory.section WHERE event_id = $1 AND section_id = $2 FOR UPDATE"
BOTH = {"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}


async def open_one(fleet: Fleet) -> asyncpg.Connection:
    return await asyncpg.connect(with_driver(fleet.postgres_url))


async def take_all(fleet: Fleet, stack: AsyncExitStack) -> None:
    """Every connection the server has, those of the services included."""
    mine = []
    while True:
        try:
            mine.append(await open_one(fleet))
        except asyncpg.TooManyConnectionsError:
            if not await mine[0].fetch(OURS):
                return
        else:
            stack.push_async_callback(mine[-1].close)


async def test_every_connection_is_taken_and_comes_back(fleet: Fleet, recovery: Callable[..., None]) -> None:
    """Meanwhile fans hear 503 with a Retry-After, soon; nobody waits on a frozen page."""
    event_id = await fleet.open_event()
    answered: Counter[int] = Counter()
    slowest_s = 0.0
    async with fleet.browser() as browser, AsyncExitStack() as stack:
        fan = await PatientFan(browser, event_id).come_in()
        await take_all(fleet, stack)
        asks = (lambda: browser.post(f"{fan.path}/queue"), lambda: fan.reserve(seats=["A-1-1"]))
        for ask in asks * 3:
            began_s = time.monotonic()
            answer = await ask()
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            answered[answer.status_code] += 1
            assert "retry-after" in answer.headers, answer.text
        assert set(answered) == {503}
        assert slowest_s < 10
        freed_s = time.monotonic()
        await stack.aclose()
        order = await fan.buys(seats=["A-1-1"])
        assert order["status"] == "confirmed"
        recovery("every connection of PostgreSQL taken, 503 meanwhile", time.monotonic() - freed_s, promise="20 s / 0")
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def test_the_loser_of_a_deadlock_tries_again_before_the_fan_notices(
    fleet: Fleet, ledger: asyncpg.Connection, recovery: Callable[..., None]
) -> None:
    """An operator's session locks the sections in the other order; PostgreSQL ends the fan's transaction after a
    second, and only that.
    """
    event_id = await fleet.open_event()
    operator = await open_one(fleet)
    async with fleet.browser() as browser:
        fan = await PatientFan(browser, event_id).come_in()
        async with operator.transaction():
            await operator.execute("SET LOCAL deadlock_timeout = '30s'")
            await operator.execute(LOCK, event_id, "GA1")
            began_s = time.monotonic()
            holding = asyncio.create_task(fan.reserve(**BOTH))
            await wait_until(lambda: some(ledger), timeout_s=10)
            await operator.execute(LOCK, event_id, "A")
        answer = await holding
        assert answer.status_code == 201, answer.text
        recovery("two transactions in a deadlock", time.monotonic() - began_s, promise="5 s / 0")
    await operator.close()


async def some(ledger: asyncpg.Connection) -> bool:
    return bool(await ledger.fetchval(WAITERS))
