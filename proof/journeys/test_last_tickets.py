"""All tickets of an event are sold although some admitted fans do not buy."""

import asyncio
import random
from contextlib import aclosing, suppress
from functools import partial

import httpx
import pytest

from onsale.client import Client, Fan, Problem
from onsale.client.fan_documents import ReservationView
from shared.redis.client import connect
from tests.support.running.fans import client_of, fan_of, may_be_refused
from tests.support.running.suite import RunningSuite
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
        assert (sum(bought), await stock(client_of(browser), event_id)) == (TICKETS, (0, 0))
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=10)


async def never_claims(browser: httpx.AsyncClient, event_id: str) -> int:
    await fan_of(browser, event_id).join()
    return 0


async def never_holds(browser: httpx.AsyncClient, event_id: str) -> int:
    await is_admitted(fan_of(browser, event_id))
    return 0


async def never_pays(browser: httpx.AsyncClient, event_id: str) -> int:
    fan = fan_of(browser, event_id)
    if await is_admitted(fan):
        await hold_tickets(fan, TICKETS_PER_FAN)
    return 0


async def buys(browser: httpx.AsyncClient, event_id: str) -> int:
    """Buys until they have all tickets they want or none is left; joins again after a session with too few."""
    bought = 0
    while bought < TICKETS_PER_FAN and any(await stock(client_of(browser), event_id)):
        fan = fan_of(browser, event_id)
        if await is_admitted(fan):
            bought += await purchase(fan, TICKETS_PER_FAN - bought)
    return bought


async def purchase(fan: Fan, wanted: int) -> int:
    """The number of tickets this fan bought before the session ended or all were sold."""
    while hold := await hold_tickets(fan, wanted):
        with may_be_refused("hold-expired"):  # the machine was too slow
            async with asyncio.timeout(60):
                assert (await fan.buy(hold))["status"] == "confirmed"
            return len(hold["seats"]) + int(hold["ga_quantity"])
    return 0


async def hold_tickets(fan: Fan, wanted: int) -> ReservationView | None:
    """A hold of `wanted` tickets, or of one ticket when few are left; none once all are sold."""
    while any(stock_left := await stock(fan.client, fan.event_id)):
        with may_be_refused("sold-out"):
            return await fan.hold({"best_available": {"quantity": wanted if stock_left[0] > 12 else 1, "split": True}})
        await asyncio.sleep(0.5)
    return None


async def stock(client: Client, event_id: str) -> tuple[int, int]:
    sections = (await client.sections(event_id))["sections"]
    return sum(s["available_seats"] for s in sections), sum(s["held_seats"] for s in sections)


async def is_admitted(fan: Fan) -> bool:
    """Joins and claims the call; false if the call expired or the event is sold out."""
    with may_be_refused("sold-out"):
        await fan.join()
    if not fan.join_seq:
        return False
    while (place := await fan.status())["status"] != "expired":
        if place["status"] == "ready":
            with suppress(Problem):
                return bool(await fan.claim())
        elif place["state"] == "sold_out":
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
            idle_fans, waiting = ([fan_of(browser, event_id) for _ in range(tickets)] for _ in range(2))
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
                async with asyncio.timeout(30):
                    assert (await fan.wait())["status"] == "ready"
                await fan.claim()
            [first, *_] = idle_fans
            assert await first.hold({"ga": [{"section_id": "GA", "quantity": 1}]}), "an idle session can still buy"

        await asyncio.gather(check_waiting_fans_are_called(1), check_waiting_fans_are_called(3))
