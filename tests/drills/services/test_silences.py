"""Several parts are gone at the same moment, with fans on every step of their way: how long is anybody left alone?"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from shared.web.routes import SERVICES, Service
from tests.drills.crowd import PatientFan, longest_silence_s
from tests.drills.fleet import Fleet
from tests.drills.postgres.test_ledger_trouble import OURS
from tests.drills.services.test_restarts import RESERVED, ROOM, more_than
from tests.support.wait import wait_until

pytestmark = pytest.mark.drill
FANS, ALONE_MAX_S = 24, 30.0
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 5000}]
PROMISE = "30 s / 0"


def killed(*services: Service) -> Callable[[Fleet, asyncpg.Connection], Awaitable[None]]:
    """`kill -9` of all of them at the same moment, each started again at once, as a supervisor does."""

    async def strike(fleet: Fleet, _: asyncpg.Connection) -> None:
        for service in services:
            fleet.programs[service].send(signal.SIGKILL)
        for service in services:
            await asyncio.to_thread(fleet.programs[service].end, signal.SIGKILL)
            fleet.programs[service].start()

    return strike


async def connections_cut(_: Fleet, ledger: asyncpg.Connection) -> None:
    """An operator ends every session of ours, five times within a second."""
    for _cut in range(5):
        await ledger.fetch(OURS)
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("what", "strike"),
    [
        ("queue and inventory killed at once", killed("queue", "inventory")),
        ("inventory and orders killed at once", killed("inventory", "orders")),
        ("gateway and orders killed at once", killed("gateway", "orders")),
        ("all five services killed at once", killed(*SERVICES)),
        ("every connection to PostgreSQL cut, five times in a second", connections_cut),
    ],
)
async def test_nobody_is_left_alone_for_long(
    fleet: Fleet,
    ledger: asyncpg.Connection,
    what: str,
    strike: Callable[[Fleet, asyncpg.Connection], Awaitable[None]],
    recovery: Callable[..., None],
) -> None:
    event_id = await fleet.open_event(room=ROOM, sections=SEATS)
    async with fleet.browser() as browser:

        async def live(number: int) -> str:
            await asyncio.sleep(number * 0.1)
            fan = await PatientFan(browser, event_id).come_in()
            return str((await fan.buys(seats=[f"A-{1 + number // 10}-{1 + number % 10}"]))["status"])

        selling = asyncio.gather(*(live(number) for number in range(FANS)))
        await wait_until(lambda: more_than(ledger, RESERVED, 3, event_id), timeout_s=30)
        struck_s = time.monotonic()
        await strike(fleet, ledger)
        fan = await PatientFan(browser, event_id).come_in()
        assert (await fan.buys(seats=["A-4-10"]))["status"] == "confirmed"
        recovery(f"{what}: a whole purchase", time.monotonic() - struck_s, promise=PROMISE)
        assert await selling == ["confirmed"] * FANS
    assert longest_silence_s() < ALONE_MAX_S
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
