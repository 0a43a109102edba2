"""A fan watches a hall while others hold, give back and buy: the map, its state and the stream agree."""

import asyncio
import json
from typing import Any

import httpx

from onsale.server_sent_events import messages
from shared.rules import seat_codes
from tests.notifier.page import SeatPage
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until


async def state(fan: Fan) -> tuple[int, bytes]:
    answer = await fan.browser.get(f"/events/{fan.event_id}/map/state", headers=bearer(fan.admission))
    assert answer.status_code == 200, answer.text
    return seat_codes.decode_state(answer.content)[1:]


async def follow(fan: Fan, page: SeatPage) -> None:
    """Applies the stream's seats to the page."""
    path, headers = f"/events/{fan.event_id}/sections/updates?seats=*", bearer(fan.admission)
    async with fan.browser.stream("GET", path, headers=headers, timeout=httpx.Timeout(30)) as stream:
        async for name, data, *_ in messages(stream):
            if name == "seats":
                page.apply(json.loads(data), (0, b""))


async def test_a_fan_sees_the_seats_of_the_hall_change(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.browser() as other:
        fan, buyer = await Fan(browser, event_id).come_in(), await Fan(other, event_id).come_in()
        details = (await browser.get(f"/events/{event_id}")).json()
        geometry = (await browser.get(f"/events/{event_id}/map?v={details['map_hash']}")).json()
        seats = sum(s["rows"]["count"] * s["rows"]["seats"] for s in geometry["sections"] if s["rows"])
        page = SeatPage(seats)
        following = asyncio.create_task(follow(fan, page))
        await wait_until(lambda: page.codes == bytes(seats))
        hold = await buyer.hold(seats=["A-1-1", "A-1-2"])
        await wait_until(lambda: page.codes[:3] == bytes([1, 1, 0]))
        assert (await buyer.buy(hold))["status"] == "confirmed"
        await wait_until(lambda: page.codes[:3] == bytes([2, 2, 0]))
        mine: dict[str, Any] = await fan.hold(seats=["A-2-1"])
        await wait_until(lambda: page.codes.count(1) == 1)
        await browser.delete(f"/events/{event_id}/reservations/{mine['reservation_id']}", headers=bearer(fan.admission))
        await wait_until(lambda: page.codes.count(0) == seats - 2)
        assert (page.version, page.codes, page.healed) == (*await state(fan), 0)
        following.cancel()
    assert await suite.audit(event_id) == []
