"""Services restart or are killed during sales, alone or together, or lose PostgreSQL: every purchase succeeds, no fan
is long without a good answer, and nothing is sold twice.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import asyncpg
import pytest

from onsale.local.engines import with_driver
from proof.drills.fleet import Fleet
from proof.drills.postgres.test_full_disk import END_CONNECTIONS
from proof.drills.sale import (
    INVENTORY_WAITS_FOR_A_LOCK,
    RESERVATIONS,
    SEATS,
    Recorder,
    longest_silence_s,
    on_sale,
    seat,
    until_count,
)
from shared.routes import SALE_SERVICES, Service
from tests.support.wait import wait_until

FANS, SILENCE_MAX_S = 24, 30.0
SOLD = "SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'sold'"
PROMISES = {"queue": "30 s / 0", "gateway": "30 s / 0", "notifier": "45 s / 10 s"}
Failure = Callable[[Fleet, asyncpg.Connection], Awaitable[None]]


async def restarted(service: Service, fleet: Fleet, _: asyncpg.Connection) -> None:
    await fleet.restart(service, signal.SIGTERM)


async def killed(services: tuple[Service, ...], fleet: Fleet, _: asyncpg.Connection) -> None:
    """Kills these services at the same moment and restarts each at once, as a supervisor does."""
    for service in services:
        fleet.programs[service].send(signal.SIGKILL)
    for service in services:
        await asyncio.to_thread(fleet.programs[service].end, signal.SIGKILL)
        fleet.programs[service].start()


async def connections_cut(_: Fleet, database: asyncpg.Connection) -> None:
    """Ends every connection of the services five times within a second."""
    for _cut in range(5):
        await database.fetch(END_CONNECTIONS)
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(("what", "fail", "promise"), [
    *((f"{service} restarted, its only process", partial(restarted, service), PROMISES.get(service, "15 s / 0"))
      for service in SALE_SERVICES),
    *((f"{' and '.join(services)} killed at once: a whole purchase", partial(killed, services), "30 s / 0")
      for services in (("queue", "inventory"), ("inventory", "orders"), ("gateway", "orders"))),
    ("all five services killed at once: a whole purchase", partial(killed, SALE_SERVICES), "30 s / 0"),
    ("every connection to PostgreSQL cut, five times in a second: a whole purchase", connections_cut, "30 s / 0"),
])  # fmt: skip
async def test_every_purchase_succeeds_and_no_fan_is_without_a_good_answer_for_long(
    fleet: Fleet, database: asyncpg.Connection, what: str, fail: Failure, promise: str, recovery: Recorder
) -> None:
    async with on_sale(fleet, sections=SEATS) as sale:

        async def join_and_buy(number: int) -> str:
            await asyncio.sleep(number * 0.1)
            return str((await sale.buy({"seats": [seat(number)]}))["status"])

        selling = asyncio.gather(*(join_and_buy(number) for number in range(FANS)))
        await until_count(database, 4, RESERVATIONS, sale.event_id)
        failed_s = time.monotonic()
        await fail(fleet, database)
        restarted_s = time.monotonic()
        assert (await sale.buy({"seats": [seat(39)]}))["status"] == "confirmed"
        bought_s, by_purchase = time.monotonic(), what.endswith("a whole purchase")
        recovery(what, (bought_s if by_purchase else restarted_s) - failed_s, promise=promise)
        assert await selling == ["confirmed"] * FANS
        assert await database.fetchval(SOLD, sale.event_id) == FANS + 1
        assert longest_silence_s() < SILENCE_MAX_S or not by_purchase


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
    fleet: Fleet, database: asyncpg.Connection, delay: Callable[[Fleet], AbstractAsyncContextManager[None]],
    written: bool,
) -> None:  # fmt: skip
    """`kill -9` between Redis and PostgreSQL, or between the commit and the answer. In both cases the fan retries and
    has one reservation.
    """
    async with on_sale(fleet, sections=SEATS) as sale:
        fan = await sale.come_in()
        async with delay(fleet):
            holding = asyncio.create_task(fan.hold({"seats": ["A-1-1", "A-1-2"]}))
            await until_count(database, 1, INVENTORY_WAITS_FOR_A_LOCK)
            await asyncio.to_thread(fleet.programs["inventory"].end, signal.SIGKILL)
        await wait_until(lambda: _statements_have_ended(database), timeout_s=10)
        assert (await database.fetchval(RESERVATIONS, sale.event_id) == 1) == written
        fleet.programs["inventory"].start()
        await asyncio.to_thread(fleet.wait_for, "inventory")
        assert (await fan.buy(await holding))["status"] == "confirmed"
        assert await database.fetchval(f"{RESERVATIONS} AND status = 'confirmed'", sale.event_id) == 1
        other = await sale.come_in()
        assert (await other.hold({"seats": ["A-1-3"]}))["status"] == "pending_payment"


async def _statements_have_ended(database: asyncpg.Connection) -> bool:
    """Whether the killed process's statements have ended in the database too."""
    busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND state <> 'idle'"
    return bool(await database.fetchval(busy) == 0)
