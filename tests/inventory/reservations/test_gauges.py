"""The gauges of live holds say what the table says, and what ended is gone from them."""

from prometheus_client import REGISTRY

from services.inventory.gauges import LiveHoldGauges
from tests.inventory.conftest import EVENT, Inventory


def pending(status: str = "pending_payment") -> float | None:
    return REGISTRY.get_sample_value("inventory_holds_pending", {"event_id": EVENT, "status": status})


async def test_live_holds_are_counted_by_status_until_they_end(inventory: Inventory) -> None:
    gauges = LiveHoldGauges(inventory.state.autocommit_db)
    first = await inventory.hold("ann", seats=["A-1-1"])
    second = await inventory.hold("bob", seats=["A-1-2"])
    await gauges.refresh()
    assert (pending(), pending("paying")) == (2, 0)
    assert await inventory.outcome("begin-payment", second, "A1") == "done"
    await gauges.refresh()
    assert (pending(), pending("paying")) == (1, 1)
    assert (REGISTRY.get_sample_value("inventory_oldest_hold_seconds", {"event_id": EVENT}) or 0) > 0
    assert (await inventory.fan_request("DELETE", first, "ann")).is_success
    assert await inventory.outcome("confirm", second, "A1") == "done"
    await gauges.refresh()
    assert (pending(), pending("paying")) == (0, 0)
    assert REGISTRY.get_sample_value("inventory_oldest_hold_seconds", {"event_id": EVENT}) == 0
