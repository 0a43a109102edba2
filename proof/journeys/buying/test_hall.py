"""A fan watches a hall while others hold, give back and buy: the map, its state and the stream agree."""

import asyncio
from contextlib import aclosing

from features.hall import seat_codes
from onsale.client import Fan
from tests.notifier.page import SeatPage
from tests.support.running.suite import RunningSuite, fan_of
from tests.support.wait import wait_until


async def state(fan: Fan) -> tuple[int, bytes]:
    return seat_codes.decode_state(await fan.client.map_state(fan.event_id, token=fan.admission))[1:]


async def follow(fan: Fan, page: SeatPage) -> None:
    """Applies the stream's seats to the page."""
    async with aclosing(fan.client.event_updates(fan.event_id, seats="*", token=fan.admission)) as updates:
        async for kind, frame in updates:
            if kind == "seats":
                page.apply(frame, (0, b""))


async def test_a_fan_sees_the_seats_of_the_hall_change(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.browser() as other:
        fan, buyer = await fan_of(browser, event_id).come_in(), await fan_of(other, event_id).come_in()
        details = (await browser.get(f"/events/{event_id}")).json()
        geometry = (await browser.get(f"/events/{event_id}/map?v={details['map_hash']}")).json()
        seats = sum(s["rows"]["count"] * s["rows"]["seats"] for s in geometry["sections"] if s["rows"])
        page = SeatPage(seats)
        following = asyncio.create_task(follow(fan, page))
        await wait_until(lambda: page.codes == bytes(seats))
        hold = await buyer.hold({"seats": ["A-1-1", "A-1-2"]})
        await wait_until(lambda: page.codes[:3] == bytes([1, 1, 0]))
        assert (await buyer.buy(hold))["status"] == "confirmed"
        await wait_until(lambda: page.codes[:3] == bytes([2, 2, 0]))
        mine = await fan.hold({"seats": ["A-2-1"]})
        await wait_until(lambda: page.codes.count(1) == 1)
        await fan.release(mine)
        await wait_until(lambda: page.codes.count(0) == seats - 2)
        assert (page.version, page.codes, page.healed) == (*await state(fan), 0)
        following.cancel()
    assert await suite.wrong(event_id) == []
