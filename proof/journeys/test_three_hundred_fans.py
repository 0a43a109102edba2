"""300 fans join at once for 100 tickets: every ticket is sold once, and the other fans learn that it is sold out."""

import asyncio

from tests.support.running.suite import Fan, RunningSuite, problem
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
    assert await suite.audit(event_id) == []


async def buy_one_ticket(browser, event_id: str, number: int) -> tuple[int, list[str]]:
    """Tries three seats, then the floor, then all other seats; the number of tickets bought, and their seats."""
    fan = Fan(browser, event_id)
    await fan.join()
    if not await wait_for_call(fan, browser):
        return 0, []
    await fan.claim()
    selections: list[dict] = [
        {"seats": [f"A-{1 + (number + step) % 50 // 10}-{1 + (number + step) % 10}"]} for step in range(50)
    ]
    selections = [*selections[:3], {"ga": [{"section_id": "GA", "quantity": 1}]}, *selections[3:]]
    for selection in selections:
        answer = await fan.reserve(**selection)
        if answer.status_code == 201:
            order = await fan.buy(answer.json())
            assert order["status"] == "confirmed"
            return 1, list(answer.json()["seats"])
        assert problem(answer) in {(409, "seats-taken"), (409, "sold-out")}
        if not await is_anything_left(browser, event_id):
            break
    return 0, []


async def is_anything_left(browser, event_id: str) -> bool:
    answer = (await browser.get(f"/events/{event_id}/sections")).json()
    return any(section["available_seats"] + section["held_seats"] for section in answer["sections"])


async def wait_for_call(fan: Fan, browser) -> bool:
    """Waits for the call; false if the event is sold out before it."""
    while True:
        place = await fan.status()
        if place["status"] == "ready":
            return True
        if (await browser.get(f"{fan.path}/queue")).json()["state"] == "sold_out":
            return False
        await asyncio.sleep(place["poll_after_ms"] / 1000)
