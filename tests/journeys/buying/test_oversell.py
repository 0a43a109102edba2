"""An oversell in a running suite: found, the last buyer loses the tickets, has all the money back, and is told why."""

import asyncpg

from onsale.local.engines import with_driver
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

POLICY = {"oversell": {"policy": "cancel_latest", "review_percent": 50}}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 3000}]


async def test_the_last_buyer_of_an_oversold_floor_is_refunded_and_told(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales=POLICY, sections=FLOOR)
    ledger = await asyncpg.connect(with_driver(suite.engines["postgres_url"]))
    async with suite.browser() as browser, suite.operator() as operator:
        orders = []
        for _ in range(3):
            fan = await Fan(browser, event_id).come_in()
            held = await fan.hold(ga=[{"section_id": "GA1", "quantity": 2}])
            placed = (await fan.order(held)).json()
            await fan.ending(placed)
            orders.append(placed)
        shrink = "UPDATE inventory.section SET capacity = 5, seats_remaining = 0 WHERE event_id = $1"
        await ledger.execute(shrink, event_id)
        await ledger.close()
        path = f"/admin/inventory/events/{event_id}/reconcile"

        async def statuses() -> list[str]:
            await operator.post(path)
            asked = [await browser.get(f"/orders/{o['reference']}", headers=bearer(o["order_token"])) for o in orders]
            return [answer.json()["status"] for answer in asked]

        async def over() -> bool:
            return await statuses() == ["confirmed", "confirmed", "refunded"]

        await wait_until(over, timeout_s=25, interval_s=0.5)
        last = await browser.get(f"/orders/{orders[2]['reference']}", headers=bearer(orders[2]["order_token"]))
        assert (last.json()["oversold"], last.json()["refunded_minor"]) == (True, 6000)
        (case,) = (await operator.get(path)).json()["oversell"]
        assert (case["status"], case["excess"], case["returns"][0]["refund"]) == ("cancelled", 1, "asked")
        section = (await browser.get(f"/events/{event_id}/sections")).json()["sections"][0]
        assert section["available_seats"] == 1
    assert await suite.audit(event_id) == []
