"""300 fans join at once for 100 tickets: every ticket is sold once, and the other fans learn that it is sold out."""

import asyncio

from onsale.client import NotCalled, Pace
from onsale.client.fan_documents import ReserveBody
from tests.support.running.fans import fan_of, may_be_refused
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

FANS, TICKETS = 300, 100


async def test_three_hundred_fans_buy_all_of_a_hundred_tickets_once(suite: RunningSuite) -> None:
    sections = [
        {"section_id": "A", "name": "Block", "kind": "seated", "rows": 5, "seats_per_row": 10, "price_minor": 5000},
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
    ]
    event_id = await suite.open_event(sections=sections)
    async with suite.browser() as browser:
        endings = await asyncio.gather(*(buy_one_ticket(browser, event_id, number) for number in range(FANS)))
        assert sum(tickets for tickets, _ in endings) == TICKETS
        seats = [seat for _, own_seats in endings for seat in own_seats]
        assert len(seats) == len(set(seats)) == 50

        async def nothing_left() -> bool:
            answer = (await browser.get(f"/events/{event_id}/sections")).json()
            return all(section["available_seats"] == section["held_seats"] == 0 for section in answer["sections"])

        await wait_until(nothing_left, timeout_s=10)
    assert await suite.wrong(event_id) == []


async def buy_one_ticket(browser, event_id: str, number: int) -> tuple[int, list[str]]:
    """Tries three seats, then the floor, then all other seats; the number of tickets bought, and their seats."""
    fan = fan_of(browser, event_id)
    fan.pace = Pace()  # as often as the suite says
    try:
        await fan.come_in()
    except NotCalled as over:
        if over.last["state"] != "sold_out":
            raise
        return 0, []
    selections: list[ReserveBody] = [
        {"seats": [f"A-{1 + (number + step) % 50 // 10}-{1 + (number + step) % 10}"]} for step in range(50)
    ]
    selections = [*selections[:3], {"ga": [{"section_id": "GA", "quantity": 1}]}, *selections[3:]]
    for selection in selections:
        held = None
        with may_be_refused("seats-taken", "sold-out"):
            held = await fan.hold(selection)
        if held is not None:
            assert (await fan.buy(held))["status"] == "confirmed"
            return 1, list(held["seats"])
        if not await is_anything_left(browser, event_id):
            break
    return 0, []


async def is_anything_left(browser, event_id: str) -> bool:
    answer = (await browser.get(f"/events/{event_id}/sections")).json()
    return any(section["available_seats"] + section["held_seats"] for section in answer["sections"])
