"""The overload guard: a slow inventory lowers the admission rate, and the rate rises again afterwards."""

import asyncio
from typing import Any

import asyncpg

from onsale.client import Problem
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SLOW_MS, FANS = 300, 14


async def test_a_slow_inventory_lowers_the_admission_rate_within_thirty_seconds(suite: RunningSuite) -> None:
    room = {"rate_per_s": 200, "burst": 50, "pace": {"guard": "on", "slow_ms": SLOW_MS}}
    event_id = await suite.open_event(room=room)
    database = await asyncpg.connect(suite.engines["postgres_url"].replace("+asyncpg", ""))
    async with suite.operator() as operator, suite.browser() as browser:
        room_now: dict[str, Any] = {}

        async def is_throttled() -> bool:
            room_now.update((await operator.get(f"/admin/events/{event_id}/room")).json())
            return room_now["throttled"] is not None

        fans = await asyncio.gather(*(fan_of(browser, event_id).come_in() for _ in range(FANS)))
        transaction = database.transaction()
        await transaction.start()
        await database.execute("LOCK TABLE inventory.reservation IN ACCESS EXCLUSIVE MODE")
        holds = [asyncio.create_task(fan.hold({"ga": [{"section_id": "GA1", "quantity": 1}]})) for fan in fans]
        await wait_until(is_throttled, timeout_s=30)
        await transaction.rollback()
        await database.close()
        assert room_now["throttled"]["reason"].startswith("inventory-")
        assert room_now["effective_rate_per_s"] < room_now["rate_per_s"] == 200
        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert line["throttled"]["factor"] < 1
        refused = [each for each in await asyncio.gather(*holds, return_exceptions=True) if isinstance(each, Exception)]
        assert all(isinstance(each, Problem) and each.status == 503 for each in refused), refused

        lowest = room_now["effective_rate_per_s"]

        async def rate_rises() -> bool:
            nonlocal lowest
            await is_throttled()
            lowest = min(lowest, room_now["effective_rate_per_s"])
            return bool(room_now["effective_rate_per_s"] > lowest)

        await wait_until(rate_rises, timeout_s=30)
    assert await suite.wrong(event_id) == []
