"""One service after the other goes away in the middle of sales: every fan gets what was promised, and nobody anything
twice.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from onsale.local.engines import with_driver
from shared.web.routes import SERVICES, Service
from tests.drills.crowd import PatientFan, insist
from tests.drills.fleet import Fleet
from tests.support.wait import wait_until

FANS = 8
ROOM = {"rate_per_s": 20, "burst": 4, "max_active": 100}
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 5000}]
PROMISES = {"queue": "30 s / 0", "gateway": "30 s / 0", "notifier": "45 s / 10 s"}
RESERVED = "SELECT count(*) FROM inventory.reservation WHERE event_id = $1"
HELD_UP = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND wait_event_type = 'Lock'"
)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_restarts_in_the_middle_of_sales(
    fleet: Fleet, ledger: asyncpg.Connection, service: Service, recovery: Callable[..., None]
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:

        async def live(number: int) -> str:
            fan = await PatientFan(browser, event_id).come_in()
            return str((await fan.buys(seats=[f"A-{1 + number // 5}-{1 + number % 5}"]))["status"])

        selling = asyncio.gather(*(live(number) for number in range(FANS)))
        await wait_until(lambda: more_than(ledger, RESERVED, 1, event_id), timeout_s=20)
        gone_s = time.monotonic()
        await fleet.restart(service, signal.SIGTERM)
        recovery(
            f"{service} restarted, its only process",
            time.monotonic() - gone_s,
            promise=PROMISES.get(service, "15 s / 0"),
        )
        assert await selling == ["confirmed"] * FANS
    sold = "SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'sold'"
    assert await ledger.fetchval(sold, event_id) == FANS
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


@asynccontextmanager
async def nothing_is_written(fleet: Fleet) -> AsyncIterator[None]:
    """Holds are gated, and wait for the ledger."""
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    async with connection.transaction():
        await connection.execute("LOCK TABLE inventory.reservation IN SHARE MODE")
        yield
    await connection.close()


@asynccontextmanager
async def commits_wait(fleet: Fleet) -> AsyncIterator[None]:
    """Holds are written, and their commit waits: it will come true, but nobody who asked hears of it."""
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    await connection.execute(
        "CREATE OR REPLACE FUNCTION drill_wait() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END';"
        "CREATE CONSTRAINT TRIGGER drill AFTER INSERT ON inventory.reservation DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION drill_wait()"
    )
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(4711)")
            yield
    finally:
        await connection.execute("DROP TRIGGER drill ON inventory.reservation")
        await connection.close()


@pytest.mark.parametrize(("held_up", "written"), [(nothing_is_written, False), (commits_wait, True)])
async def test_inventory_is_killed_while_it_takes_a_hold(
    fleet: Fleet, ledger: asyncpg.Connection, held_up: Callable[..., object], written: bool
) -> None:
    """`kill -9` after the gate and before the ledger, or after the ledger and before the answer. The fan asks again and
    has one reservation, whichever it was.
    """
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:
        fan = await PatientFan(browser, event_id).come_in()
        async with held_up(fleet):  # type: ignore[attr-defined]
            asking = asyncio.create_task(fan.reserve(seats=["A-1-1", "A-1-2"]))
            await wait_until(lambda: more_than(ledger, HELD_UP, 0), timeout_s=10)
            await asyncio.to_thread(fleet.programs["inventory"].end, signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)
        await wait_until(lambda: _settled(ledger), timeout_s=10)
        assert (await ledger.fetchval(RESERVED, event_id) == 1) == written
        fleet.programs["inventory"].start()
        await asyncio.to_thread(fleet.wait_for, "inventory")
        order = await fan.buys(seats=["A-1-1", "A-1-2"])
        assert order["status"] == "confirmed"
        confirmed = f"{RESERVED} AND status = 'confirmed'"
        assert await ledger.fetchval(confirmed, event_id) == 1
        other = await PatientFan(browser, event_id).come_in()
        assert (await insist(lambda: other.hold(seats=["A-1-3"])))["status"] == "pending_payment"
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def more_than(ledger: asyncpg.Connection, count: str, n: int, *values: str) -> bool:
    return bool(await ledger.fetchval(count, *values) > n)


async def _settled(ledger: asyncpg.Connection) -> bool:
    """The dead process's statements have ended in the database too."""
    busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND state <> 'idle'"
    return bool(await ledger.fetchval(busy) == 0)
