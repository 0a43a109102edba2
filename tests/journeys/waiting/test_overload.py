"""The line slows down by itself while inventory cannot keep up, says so, and picks up again."""

import asyncio
from typing import Any

import asyncpg

from tests.support.running.suite import Fan, RunningSuite
from tests.support.wait import wait_until

SLOW_MS, FANS = 300, 8


async def test_a_slow_inventory_throttles_the_line_within_thirty_seconds(suite: RunningSuite) -> None:
    room = {"rate_per_s": 200, "burst": 50, "pace": {"guard": "on", "slow_ms": SLOW_MS}}
    event_id = await suite.open_event(room=room)
    ledger = await asyncpg.connect(suite.engines["postgres_url"].replace("+asyncpg", ""))
    async with suite.operator() as operator, suite.browser() as browser:
        shown: dict[str, Any] = {}

        async def throttled() -> bool:
            shown.update((await operator.get(f"/admin/events/{event_id}/room")).json())
            return shown["throttled"] is not None

        fans = await asyncio.gather(*(Fan(browser, event_id).come_in() for _ in range(FANS)))
        lock = ledger.transaction()
        await lock.start()
        await ledger.execute("LOCK TABLE inventory.reservation IN ACCESS EXCLUSIVE MODE")
        asks = [asyncio.create_task(fan.reserve(ga_section="GA1", ga_quantity=1)) for fan in fans]
        await wait_until(throttled, timeout_s=30)
        await lock.rollback()
        await ledger.close()
        assert shown["throttled"]["reason"].startswith("inventory-")
        assert shown["effective_rate_per_s"] < shown["rate_per_s"] == 200
        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert line["throttled"]["factor"] < 1
        assert {answer.status_code for answer in await asyncio.gather(*asks)} <= {201, 503}

        lowest = shown["effective_rate_per_s"]

        async def picking_up() -> bool:
            nonlocal lowest
            await throttled()
            lowest = min(lowest, shown["effective_rate_per_s"])
            return bool(shown["effective_rate_per_s"] > lowest)

        await wait_until(picking_up, timeout_s=30)
    assert await suite.audit(event_id) == []
