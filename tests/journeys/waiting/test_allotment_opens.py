"""Sold out, and yet not over: an allotment opens, and the line calls again, over all five services."""

from tests.support.running.suite import Fan, RunningSuite
from tests.support.wait import wait_until

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 4, "price_minor": 3000, "fee_minor": 100}


async def room_state(fan: Fan) -> str:
    return str((await fan.browser.get(f"{fan.path}/queue")).json()["state"])


async def test_a_sold_out_line_calls_again_when_an_allotment_opens(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sections=[FLOOR], room={"max_active": 1, "burst": 1})
    stock = f"/admin/inventory/events/{event_id}"
    async with suite.browser() as browser, suite.operator() as operator:
        kept = {"name": "Radio", "kind": "channel", "ga": [{"section_id": "GA1", "quantity": 2}]}
        assert (await operator.put(f"{stock}/allotments/radio", json=kept)).is_success
        first, second = await Fan(browser, event_id).come_in(), Fan(browser, event_id)
        await second.join()
        reservation = await first.hold(ga_section="GA1", ga_quantity=2)
        assert (await first.buy(reservation))["status"] == "confirmed"
        await wait_until(async_is(lambda: room_state(second), "sold_out"), timeout_s=20)
        # called in the moment before the line had heard of it, or not: there is nothing to hold
        assert (await second.status())["status"] in ("waiting", "ready")

        opened = await operator.post(f"{stock}/allotments/radio/open", json={"reason": "sold nothing"})
        assert opened.json()["changed"] is True
        await second.wait_for_the_call()
        await second.claim()
        assert (await second.buy(await second.hold(ga_section="GA1", ga_quantity=2)))["status"] == "confirmed"
        report = (await operator.get(f"{stock}/stock")).json()
        assert (report["total"]["sold"], report["total"]["revenue_minor"]) == (4, 4 * 3100)
        sales = (await operator.get(f"{stock}/sales.csv")).text.splitlines()
        assert len(sales) == 3
    assert await suite.audit(event_id) == []


def async_is(read, wanted):
    async def is_so() -> bool:
        return await read() == wanted

    return is_so
