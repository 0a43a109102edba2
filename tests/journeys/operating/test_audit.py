"""What no service can see alone: an order that was confirmed, and the sale that must stand behind it."""

import asyncpg

from tests.support.running.suite import Fan, RunningSuite


async def test_a_sale_that_inventory_forgot_is_named_by_the_cross_check_alone(suite: RunningSuite) -> None:
    """Each ledger is in order by itself, as after a restore of one of them: only both together show the loss."""
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold(seats=["A-1-1"])))["status"] == "confirmed"
    assert await suite.audit(event_id) == []
    ledger = await asyncpg.connect(suite.engines["postgres_url"])
    try:
        forget = "UPDATE inventory.reservation SET confirmed_at = NULL WHERE event_id = $1 AND status = 'confirmed'"
        assert await ledger.execute(forget, event_id) == "UPDATE 1"
    finally:
        await ledger.close()
    assert [broken.invariant for broken in await suite.audit(event_id)] == ["7 confirmed orders are sold"]
