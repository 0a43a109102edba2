"""Several services or all connections to PostgreSQL fail at once, and every fan soon gets a good answer again."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from shared.web.routes import SERVICES, Service
from tests.drills.fleet import Fleet
from tests.drills.patient_fans import PatientFan, longest_silence_s
from tests.drills.postgres_faults import END_CONNECTIONS
from tests.drills.queries import RESERVATIONS, count_is_at_least
from tests.support.wait import wait_until

FANS, SILENCE_MAX_S = 24, 30.0
ROOM = {"rate_per_s": 20, "burst": 4, "max_active": 100}
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 5000}]
PROMISE = "30 s / 0"


def killed(*services: Service) -> Callable[[Fleet, asyncpg.Connection], Awaitable[None]]:
    """Kills these services at the same moment and restarts each at once, as a supervisor does."""

    async def fail(fleet: Fleet, _: asyncpg.Connection) -> None:
        for service in services:
            fleet.programs[service].send(signal.SIGKILL)
        for service in services:
            await asyncio.to_thread(fleet.programs[service].end, signal.SIGKILL)
            fleet.programs[service].start()

    return fail


async def connections_cut(_: Fleet, database: asyncpg.Connection) -> None:
    """Ends every connection of the services five times within a second."""
    for _cut in range(5):
        await database.fetch(END_CONNECTIONS)
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("what", "fail"),
    [
        ("queue and inventory killed at once", killed("queue", "inventory")),
        ("inventory and orders killed at once", killed("inventory", "orders")),
        ("gateway and orders killed at once", killed("gateway", "orders")),
        ("all five services killed at once", killed(*SERVICES)),
        ("every connection to PostgreSQL cut, five times in a second", connections_cut),
    ],
)
async def test_no_fan_is_without_a_good_answer_for_long(
    fleet: Fleet,
    database: asyncpg.Connection,
    what: str,
    fail: Callable[[Fleet, asyncpg.Connection], Awaitable[None]],
    recovery: Callable[..., None],
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:

        async def join_and_buy(number: int) -> str:
            await asyncio.sleep(number * 0.1)
            fan = await PatientFan(browser, event_id).come_in()
            return str((await fan.buys(seats=[f"A-{1 + number // 10}-{1 + number % 10}"]))["status"])

        selling = asyncio.gather(*(join_and_buy(number) for number in range(FANS)))
        await wait_until(lambda: count_is_at_least(database, 4, RESERVATIONS, event_id), timeout_s=30)
        failed_s = time.monotonic()
        await fail(fleet, database)
        fan = await PatientFan(browser, event_id).come_in()
        assert (await fan.buys(seats=["A-4-10"]))["status"] == "confirmed"
        recovery(f"{what}: a whole purchase", time.monotonic() - failed_s, promise=PROMISE)
        assert await selling == ["confirmed"] * FANS
    assert longest_silence_s() < SILENCE_MAX_S
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
