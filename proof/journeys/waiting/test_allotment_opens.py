"""An allotment is opened after an event sold out, and the line calls fans again."""

from tests.support.running.fans import fan_of, has_status
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 4, "price_minor": 3000, "fee_minor": 100}


async def test_a_sold_out_line_calls_again_when_an_allotment_opens(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sections=[FLOOR], room={"max_active": 1, "burst": 1})
    stock = f"/admin/inventory/events/{event_id}"
    async with suite.browser() as browser, suite.operator() as operator:
        allotment = {"name": "Radio", "kind": "channel", "ga": [{"section_id": "GA1", "quantity": 2}]}
        assert (await operator.put(f"{stock}/allotments/radio", json=allotment)).is_success
        first, second = await fan_of(browser, event_id).come_in(), fan_of(browser, event_id)
        await second.join()
        reservation = await first.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
        assert (await first.buy(reservation))["status"] == "confirmed"

        async def is_sold_out() -> bool:
            return bool((await browser.get(f"/events/{second.event_id}/queue")).json()["state"] == "sold_out")

        await wait_until(is_sold_out, timeout_s=20)
        # the second fan may have been called just before the queue learned that nothing is left
        assert (await second.status())["status"] in ("waiting", "ready")

        opened = await operator.post(f"{stock}/allotments/radio/open", json={"reason": "sold nothing"})
        assert opened.json()["changed"] is True
        await wait_until(lambda: has_status(second, "ready"))
        await second.claim()
        assert (await second.buy(await second.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})))[
            "status"
        ] == "confirmed"
        report = (await operator.get(f"{stock}/stock")).json()
        assert (report["total"]["sold"], report["total"]["revenue_minor"]) == (4, 4 * 3100)
        sales = (await operator.get(f"{stock}/sales.csv")).text.splitlines()
        assert len(sales) == 3
    assert await suite.wrong(event_id) == []
