"""A sale to the very last place: whoever gives up, early or late, keeps nobody who waits from what is left."""

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

TICKETS, FANS, TICKETS_A_FAN = 300, 108, 6
ROOM = {"claim_window_s": 12, "session_s": 900}
SHORT = {"hold_ttl_s": 8, "grace_s": 0}


@pytest.mark.timeout(150)
async def test_all_tickets_are_sold_although_fans_give_up(suite: RunningSuite) -> None:
    """A third of the fans never claims, looks around and does nothing, or lets a hold run out; sessions last 15 min."""
    sections = [
        {"section_id": "A", "name": "Block", "kind": "seated", "rows": 10, "seats_per_row": 15, "price_minor": 5000},
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 150, "price_minor": 3000},
    ]
    event_id = await suite.open_event(
        sections=sections, room={**ROOM, "max_active": 60, "claim_window_s": 6}, sales=SHORT
    )
    luck = random.Random(36)
    kinds = luck.sample([silent, idle, lets_go] * (FANS // 9) + [buyer] * (FANS - 3 * (FANS // 9)), FANS)
    assert kinds.count(buyer) * TICKETS_A_FAN > TICKETS, "there are enough who want them"
    async with suite.browser() as browser:
        async with asyncio.timeout(120):
            bought = await asyncio.gather(*(play(browser, event_id) for play in kinds))
        assert (sum(bought), await stock(browser, event_id)) == (TICKETS, (0, 0))
    await wait_until(lambda: suite.is_clean(event_id), timeout_s=10)


async def silent(browser: httpx.AsyncClient, event_id: str) -> int:
    await Fan(browser, event_id).join()
    return 0


async def idle(browser: httpx.AsyncClient, event_id: str) -> int:
    await let_in(Fan(browser, event_id))
    return 0


async def lets_go(browser: httpx.AsyncClient, event_id: str) -> int:
    fan = Fan(browser, event_id)
    if await let_in(fan):
        await take(fan, TICKETS_A_FAN)
    return 0


async def buyer(browser: httpx.AsyncClient, event_id: str) -> int:
    """Goes on until they have what they want, or nothing is left: whoever got fewer, or came too late, joins again."""
    bought = 0
    while bought < TICKETS_A_FAN and any(await stock(browser, event_id)):
        fan = Fan(browser, event_id)
        if await let_in(fan):
            bought += await purchase(fan, TICKETS_A_FAN - bought)
    return bought


async def purchase(fan: Fan, wanted: int) -> int:
    """How many tickets this fan bought before the session ended or all were sold."""
    while hold := await take(fan, wanted):
        ordered = await fan.order(hold)
        if ordered.status_code == 202:
            assert (await fan.ending(ordered.json(), within_s=60))["status"] == "confirmed"
            return len(hold["seats"]) + int(hold["ga_quantity"])
        assert problem(ordered) == (410, "hold-expired"), "too slow on a busy machine"
    return 0


async def take(fan: Fan, wanted: int) -> dict[str, Any] | None:
    """A hold of what is wanted, or of one ticket where fewer are left; none once all are sold."""
    while any(left := await stock(fan.browser, fan.event_id)):
        answer = await fan.reserve(best_available={"quantity": wanted if left[0] > 12 else 1, "split": True})
        if answer.status_code == 201:
            return dict(answer.json())
        assert problem(answer) == (409, "sold-out")
        await asyncio.sleep(0.5)
    return None


async def stock(browser: httpx.AsyncClient, event_id: str) -> tuple[int, int]:
    sections = (await browser.get(f"/events/{event_id}/sections")).json()["sections"]
    return sum(s["available_seats"] for s in sections), sum(s["held_seats"] for s in sections)


async def let_in(fan: Fan) -> bool:
    """Joins; called and in time for it, or told that nothing is left."""
    answer = await fan.browser.post(f"{fan.path}/queue")
    if answer.status_code == 410:
        assert problem(answer) == (410, "sold-out")
        return False
    fan.joined(answer)
    while (status := (await fan.status())["status"]) != "expired":
        if status == "ready":
            if (await fan.browser.post(f"{fan.path}/queue/pass", headers=bearer(fan.token))).is_success:
                return bool(await fan.claim())
        elif (await fan.browser.get(f"{fan.path}/queue")).json()["state"] == "sold_out":
            return False
        await asyncio.sleep(0.8)
    return False


async def test_idle_buyers_keep_the_last_tickets_no_longer_than_a_claim_window(suite: RunningSuite) -> None:
    async with suite.browser() as browser:

        async def next_in_line(tickets: int) -> None:
            ga = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": tickets, "price_minor": 3000}]
            event_id = await suite.open_event(sections=ga, room=ROOM, sales=SHORT)
            idle, waiting = ([Fan(browser, event_id) for _ in range(tickets)] for _ in range(2))
            async with aclosing(connect(suite.engines["redis_url"])) as engine:  # the line has heard of the stock
                await wait_until(partial(engine.hget, f"queue:{{{event_id}}}:room", "stock_known"), timeout_s=10)
            for fan in idle:
                await fan.come_in()
            for fan in waiting:
                await fan.join()
            assert {(await fan.status())["status"] for fan in waiting} == {"waiting"}, "whoever is inside is coming"
            for fan in waiting:
                await fan.wait_for_the_call(within_s=30)
                await fan.claim()
            [first, *_] = idle
            answer = await first.reserve(ga=[{"section_id": "GA", "quantity": 1}])
            assert answer.status_code == 201, "a session that nobody waits for any more may still buy"

        await asyncio.gather(next_in_line(1), next_in_line(3))
