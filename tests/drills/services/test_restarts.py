"""One service after the other restarts during sales, and inventory is killed during a hold: every purchase succeeds,
and nothing is sold twice.
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
from tests.drills.fleet import Fleet
from tests.drills.patient_fans import PatientFan, retry
from tests.drills.queries import INVENTORY_WAITS_FOR_A_LOCK, RESERVATIONS, count_is_at_least
from tests.support.wait import wait_until

FANS = 8
ROOM = {"rate_per_s": 20, "burst": 4, "max_active": 100}
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 5000}]
PROMISES = {"queue": "30 s / 0", "gateway": "30 s / 0", "notifier": "45 s / 10 s"}


@pytest.mark.parametrize("service", SERVICES)
async def test_every_purchase_succeeds_although_a_service_restarts(
    fleet: Fleet, database: asyncpg.Connection, service: Service, recovery: Callable[..., None]
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:

        async def join_and_buy(number: int) -> str:
            fan = await PatientFan(browser, event_id).come_in()
            return str((await fan.buys(seats=[f"A-{1 + number // 5}-{1 + number % 5}"]))["status"])

        selling = asyncio.gather(*(join_and_buy(number) for number in range(FANS)))
        await wait_until(lambda: count_is_at_least(database, 2, RESERVATIONS, event_id), timeout_s=20)
        restarted_s = time.monotonic()
        await fleet.restart(service, signal.SIGTERM)
        recovery(
            f"{service} restarted, its only process",
            time.monotonic() - restarted_s,
            promise=PROMISES.get(service, "15 s / 0"),
        )
        assert await selling == ["confirmed"] * FANS
    sold = "SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'sold'"
    assert await database.fetchval(sold, event_id) == FANS
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


@asynccontextmanager
async def writes_wait(fleet: Fleet) -> AsyncIterator[None]:
    """Redis grants holds, and their reservations wait for a table lock in PostgreSQL."""
    connection = await asyncpg.connect(with_driver(fleet.postgres_url))
    async with connection.transaction():
        await connection.execute("LOCK TABLE inventory.reservation IN SHARE MODE")
        yield
    await connection.close()


@asynccontextmanager
async def commits_wait(fleet: Fleet) -> AsyncIterator[None]:
    """Reservations are written, and their commits wait: they succeed later, without an answer to the fan."""
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


@pytest.mark.parametrize(("delay", "written"), [(writes_wait, False), (commits_wait, True)])
async def test_a_retried_hold_is_one_reservation_although_inventory_was_killed(
    fleet: Fleet, database: asyncpg.Connection, delay: Callable[..., object], written: bool
) -> None:
    """`kill -9` between Redis and PostgreSQL, or between the commit and the answer. In both cases the fan retries and
    has one reservation.
    """
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:
        fan = await PatientFan(browser, event_id).come_in()
        async with delay(fleet):  # type: ignore[attr-defined]
            holding = asyncio.create_task(fan.reserve(seats=["A-1-1", "A-1-2"]))
            await wait_until(lambda: count_is_at_least(database, 1, INVENTORY_WAITS_FOR_A_LOCK), timeout_s=10)
            await asyncio.to_thread(fleet.programs["inventory"].end, signal.SIGKILL)
        await asyncio.gather(holding, return_exceptions=True)
        await wait_until(lambda: _statements_have_ended(database), timeout_s=10)
        assert (await database.fetchval(RESERVATIONS, event_id) == 1) == written
        fleet.programs["inventory"].start()
        await asyncio.to_thread(fleet.wait_for, "inventory")
        order = await fan.buys(seats=["A-1-1", "A-1-2"])
        assert order["status"] == "confirmed"
        confirmed = f"{RESERVATIONS} AND status = 'confirmed'"
        assert await database.fetchval(confirmed, event_id) == 1
        other = await PatientFan(browser, event_id).come_in()
        assert (await retry(lambda: other.hold(seats=["A-1-3"])))["status"] == "pending_payment"
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def _statements_have_ended(database: asyncpg.Connection) -> bool:
    """Whether the killed process's statements have ended in the database too."""
    busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND state <> 'idle'"
    return bool(await database.fetchval(busy) == 0)
