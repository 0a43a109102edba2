"""`onsale audit` compares confirmed orders in orders with sold reservations in inventory."""

import asyncpg

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def test_a_confirmed_order_without_a_sold_reservation_fails_one_invariant_only(suite: RunningSuite) -> None:
    """Each database is consistent by itself, as after a restore of one of them; only the comparison finds the loss."""
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"

    async def agrees() -> bool:
        return await suite.audit(event_id) == []

    await wait_until(agrees)  # the slot of the place that bought is freed in Redis a moment later
    database = await asyncpg.connect(suite.engines["postgres_url"])
    try:
        undo_sale = "UPDATE inventory.reservation SET confirmed_at = NULL WHERE event_id = $1 AND status = 'confirmed'"
        assert await database.execute(undo_sale, event_id) == "UPDATE 1"
    finally:
        await database.close()
    assert [broken.invariant for broken in await suite.audit(event_id)] == ["7 confirmed orders are sold"]
