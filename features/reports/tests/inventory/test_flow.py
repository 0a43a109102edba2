"""The flow of holds: what the forecast of the sell-out is told about those that began before the oldest open one."""

from tests.inventory.conftest import EVENT, Inventory


async def test_only_holds_begun_before_the_oldest_open_one_say_how_many_are_given_back(inventory: Inventory) -> None:
    """Those begun later that have ended are rather given back at once or paid fast: the slow ones are still open."""
    bought = await inventory.hold("ann", seats=["A-1-1"])
    released = await inventory.hold("bob", seats=["A-1-2"])
    being_paid = await inventory.hold("cat", seats=["A-1-3"])
    await inventory.hold("dan", seats=["A-1-4"])
    later = await inventory.hold("eve", seats=["A-1-5"])
    for hold, order in ((bought, "A1"), (being_paid, "A2")):
        assert await inventory.outcome("begin-payment", hold, order) == "done"
    assert await inventory.outcome("confirm", bought, "A1") == "done"
    for hold, fan in ((released, "bob"), (later, "eve")):
        assert (await inventory.fan_request("DELETE", hold, fan)).is_success
    flow = await inventory.admin("GET", f"/events/{EVENT}/flow")
    assert (flow["holds"], flow["earlier"], flow["earlier_given_back"]) == (5, 2, 1)
    assert flow["oldest_open_s"] > flow["oldest_hold_s"], "since the hold began, also if it is being paid"


async def test_without_an_open_hold_there_is_no_oldest_one(inventory: Inventory) -> None:
    hold = await inventory.hold("ann", seats=["A-1-1"])
    assert (await inventory.fan_request("DELETE", hold, "ann")).is_success
    flow = await inventory.admin("GET", f"/events/{EVENT}/flow")
    assert (flow["oldest_open_s"], flow["earlier"], flow["earlier_given_back"]) == (None, 0, 0)
