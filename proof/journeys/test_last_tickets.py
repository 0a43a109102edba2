"""All tickets of an event are sold although some admitted fans do not buy."""

import asyncio
import random
from contextlib import aclosing
from functools import partial
from typing import Any

import httpx
import pytest

from shared.redis.client import connect
from tests.support.running.suite import Fan, RunningSuite, bearer, problem
from tests.support.wait import wait_until

TICKETS, FANS, TICKETS_PER_FAN = 300, 108, 6
ROOM = {"claim_window_s": 12, "session_s": 900}
SHORT_HOLDS = {"hold_ttl_s": 8, "grace_s": 0}


@pytest.mark.timeout(150)
async def test_all_tickets_are_sold_although_a_third_of_the_fans_does_not_buy(suite: RunningSuite) -> None:
    """That third never claims, or claims and does nothing, or lets a hold expire; sessions last 15 minutes."""
    sections = [
        {"section_id": "A", "name": "Block", "kind": "seated", "rows": 10, "seats_per_row": 15, "price_minor": 5000},
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 150, "price_minor": 3000},
    ]
    event_id = await suite.open_event(
        sections=sections, room={**ROOM, "max_active": 60, "claim_window_s": 6}, sales=SHORT_HOLDS
    )
    random_order = random.Random(36)
    journeys = random_order.sample(
        [never_claims, never_holds, never_pays] * (FANS // 9) + [buys] * (FANS - 3 * (FANS // 9)), FANS
    )
    assert journeys.count(buys) * TICKETS_PER_FAN > TICKETS, "the buyers want more tickets than there are"
    async with suite.browser() as browser:
        async with asyncio.timeout(120):
            bought = await asyncio.gather(*(journey(browser, event_id) for journey in journeys))
        assert (sum(bought), await stock(browser, event_id)) == (TICKETS, (0, 0))
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=10)


async def never_claims(browser: httpx.AsyncClient, event_id: str) -> int:
    await Fan(browser, event_id).join()
    return 0


async def never_holds(browser: httpx.AsyncClient, event_id: str) -> int:
    await is_admitted(Fan(browser, event_id))
    return 0


async def never_pays(browser: httpx.AsyncClient, event_id: str) -> int:
    fan = Fan(browser, event_id)
    if await is_admitted(fan):
        await hold_tickets(fan, TICKETS_PER_FAN)
    return 0


async def buys(browser: httpx.AsyncClient, event_id: str) -> int:
    """Buys until they have all tickets they want or none is left; joins again after a session with too few."""
    bought = 0
    while bought < TICKETS_PER_FAN and any(await stock(browser, event_id)):
        fan = Fan(browser, event_id)
        if await is_admitted(fan):
            bought += await purchase(fan, TICKETS_PER_FAN - bought)
    return bought


async def purchase(fan: Fan, wanted: int) -> int:
    """The number of tickets this fan bought before the session ended or all were sold."""
    while hold := await hold_tickets(fan, wanted):
        ordered = await fan.order(hold)
        if ordered.status_code == 202:
            assert (await fan.wait_for_end(ordered.json(), within_s=60))["status"] == "confirmed"
            return len(hold["seats"]) + int(hold["ga_quantity"])
        assert problem(ordered) == (410, "hold-expired"), "the machine was too slow"
    return 0


async def hold_tickets(fan: Fan, wanted: int) -> dict[str, Any] | None:
    """A hold of `wanted` tickets, or of one ticket when few are left; none once all are sold."""
    while any(stock_left := await stock(fan.browser, fan.event_id)):
        answer = await fan.reserve(best_available={"quantity": wanted if stock_left[0] > 12 else 1, "split": True})
        if answer.status_code == 201:
            return dict(answer.json())
        assert problem(answer) == (409, "sold-out")
        await asyncio.sleep(0.5)
    return None


async def stock(browser: httpx.AsyncClient, event_id: str) -> tuple[int, int]:
    sections = (await browser.get(f"/events/{event_id}/sections")).json()["sections"]
    return sum(s["available_seats"] for s in sections), sum(s["held_seats"] for s in sections)


async def is_admitted(fan: Fan) -> bool:
    """Joins and claims the call; false if the call expired or the event is sold out."""
    answer = await fan.browser.post(f"{fan.path}/queue")
    if answer.status_code == 410:
        assert problem(answer) == (410, "sold-out")
        return False
    fan.keep_place(answer)
    while (status := (await fan.status())["status"]) != "expired":
        if status == "ready":
            if (await fan.browser.post(f"{fan.path}/queue/pass", headers=bearer(fan.token))).is_success:
                return bool(await fan.claim())
        elif (await fan.browser.get(f"{fan.path}/queue")).json()["state"] == "sold_out":
            return False
        await asyncio.sleep(0.8)
    return False


async def test_idle_sessions_delay_the_call_for_the_last_tickets_by_no_more_than_a_claim_window(
    suite: RunningSuite,
) -> None:
    async with suite.browser() as browser:

        async def check_waiting_fans_are_called(tickets: int) -> None:
            ga = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": tickets, "price_minor": 3000}]
            event_id = await suite.open_event(sections=ga, room=ROOM, sales=SHORT_HOLDS)
            idle_fans, waiting = ([Fan(browser, event_id) for _ in range(tickets)] for _ in range(2))
            async with aclosing(connect(suite.engines["redis_url"])) as redis:  # the queue knows the stock
                await wait_until(partial(redis.hget, f"queue:{{{event_id}}}:room", "stock_known"), timeout_s=10)
            for fan in idle_fans:
                await fan.come_in()
            for fan in waiting:
                await fan.join()
            assert {(await fan.status())["status"] for fan in waiting} == {"waiting"}, (
                "the admitted fans may still buy all tickets"
            )
            for fan in waiting:
                await fan.wait_for_the_call(within_s=30)
                await fan.claim()
            [first, *_] = idle_fans
            answer = await first.reserve(ga=[{"section_id": "GA", "quantity": 1}])
            assert answer.status_code == 201, "an idle session can still buy"

        await asyncio.gather(check_waiting_fans_are_called(1), check_waiting_fans_are_called(3))
