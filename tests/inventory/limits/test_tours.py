"""The limit of a customer over all events of a tour, against concurrent payments at several of them."""

import asyncio
from typing import Any

import pytest

from tests.inventory.actions import count_customers_slowly
from tests.inventory.conftest import EVENT, Inventory, event_file

TOUR = {"tour_id": "tour-1", "tickets_per_customer": 4}
LIMIT = "tour_tickets_per_customer"


async def put_on_sale(inventory: Inventory, event_id: str, tour: dict[str, Any] | None = TOUR) -> None:
    sales = {"tour": tour} if tour else {}
    answer = await inventory.put({**event_file(**sales), "event_id": event_id})
    assert answer.json()["changed"] is True
    await inventory.state.redis_monitor.check()


async def hold(inventory: Inventory, event_id: str, quantity: int, holder: str = "fan") -> str:
    return await inventory.hold(holder, event_id=event_id, ga_section="GA1", ga_quantity=quantity)


async def begin(inventory: Inventory, reservation_id: str, event_id: str = EVENT) -> Any:
    order = f"order-{reservation_id}"
    return await inventory.step("begin-payment", reservation_id, order, "one-customer", event_id=event_id)


@pytest.fixture
async def inventory(inventory: Inventory) -> Inventory:
    """Two events of one tour on sale."""
    for event_id in (EVENT, "show-2"):
        await put_on_sale(inventory, event_id)
    return inventory


async def test_concurrent_payments_at_two_events_of_a_tour_share_one_limit(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_customers_slowly(monkeypatch)
    held = {event_id: await hold(inventory, event_id, 3) for event_id in (EVENT, "show-2")}
    begun = await asyncio.gather(*(begin(inventory, held[event_id], event_id) for event_id in held))
    begun.sort(key=lambda step: step["outcome"])
    over = {"limit": LIMIT, "allowed": 4, "used": 3}
    assert [(step["outcome"], step["over"]) for step in begun] == [("done", None), ("limit-exceeded", over)]


async def test_a_batch_with_two_events_counts_each_event_once(inventory: Inventory) -> None:
    first = await hold(inventory, EVENT, 2, "first")
    assert (await begin(inventory, first))["outcome"] == "done"
    requests = ((EVENT, "second", "one-customer"), ("show-2", "fan", "one-customer"), ("show-2", "x", "somebody-else"))
    held = {await hold(inventory, event_id, 1, holder): customer for event_id, holder, customer in requests}
    await inventory.step("confirm", first, f"order-{first}")
    steps = [{"reservation_id": r, "order_reference": f"order-{r}", "customer_key": c} for r, c in held.items()]
    steps = (await inventory.post_internal("/reservations/begin-payment", {"steps": steps}))["steps"]
    assert [step["outcome"] for step in steps] == ["done"] * 3, "two are bought already, each event adds one"
    last = await begin(inventory, await hold(inventory, "show-2", 1, "third"), "show-2")
    assert (last["outcome"], last["over"]["limit"]) == ("limit-exceeded", "open_orders_per_customer")
    paid = list(held)[1]
    await inventory.step("confirm", paid, f"order-{paid}", event_id="show-2")
    last = await begin(inventory, await hold(inventory, "show-2", 1, "fourth"), "show-2")
    assert (last["outcome"], last["over"]) == ("limit-exceeded", {"limit": LIMIT, "allowed": 4, "used": 4})


async def test_released_tickets_and_other_tours_do_not_count(inventory: Inventory) -> None:
    await put_on_sale(inventory, "show-3", {**TOUR, "tour_id": "tour-2"})
    first, second = await hold(inventory, EVENT, 4), await hold(inventory, "show-2", 1)
    assert (await begin(inventory, first))["outcome"] == "done"
    assert (await begin(inventory, second, "show-2"))["over"]["used"] == 4
    assert (await begin(inventory, await hold(inventory, "show-3", 4), "show-3"))["outcome"] == "done", "another tour"
    await inventory.step("release", first, f"order-{first}")
    assert (await begin(inventory, second, "show-2"))["outcome"] == "done"


async def test_the_catalogue_shows_the_tour_limit_of_the_event_file(inventory: Inventory) -> None:
    for tour, limit in ((TOUR, 4), (None, 0)):
        if tour is None:
            await put_on_sale(inventory, EVENT, tour)
        assert (await inventory.fans.get(f"/events/{EVENT}")).json()["limits"][LIMIT] == limit
        assert (await inventory.put(event_file(**({"tour": tour} if tour else {})))).json()["changed"] is False
