"""An oversell is found by reconciliation, and the latest buyer is refunded and sees the reason."""

import asyncpg

from onsale.local.engines import with_driver
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer
from tests.support.wait import wait_until

POLICY = {"oversell": {"policy": "cancel_latest", "review_percent": 50}}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 3000}]


async def test_the_latest_buyer_of_an_oversold_section_is_refunded_and_sees_why(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales=POLICY, sections=FLOOR)
    database = await asyncpg.connect(with_driver(suite.engines["postgres_url"]))
    async with suite.browser() as browser, suite.operator() as operator:
        orders = []
        for _ in range(3):
            fan = await fan_of(browser, event_id).come_in()
            held = await fan.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
            order = await fan.order(held)
            await fan.settled(order)
            orders.append(order)
        shrink = "UPDATE inventory.section SET capacity = 5, seats_remaining = 0 WHERE event_id = $1"
        await database.execute(shrink, event_id)
        await database.close()
        path = f"/admin/inventory/events/{event_id}/reconcile"

        async def statuses() -> list[str]:
            await operator.post(path)
            answers = [
                await browser.get(f"/orders/{order['reference']}", headers=bearer(order["order_token"]))
                for order in orders
            ]
            return [answer.json()["status"] for answer in answers]

        async def last_order_is_refunded() -> bool:
            return await statuses() == ["confirmed", "confirmed", "refunded"]

        await wait_until(last_order_is_refunded, timeout_s=25, interval_s=0.5)
        last = await browser.get(f"/orders/{orders[2]['reference']}", headers=bearer(orders[2]["order_token"]))
        assert (last.json()["oversold"], last.json()["refunded_minor"]) == (True, 6000)
        (case,) = (await operator.get(path)).json()["oversell"]
        assert (case["status"], case["excess"], case["returns"][0]["refund"]) == ("cancelled", 1, "asked")
        section = (await browser.get(f"/events/{event_id}/sections")).json()["sections"][0]
        assert section["available_seats"] == 1
    assert await suite.audit(event_id) == []  # the history lacks the refunds, which its fans did not ask for
