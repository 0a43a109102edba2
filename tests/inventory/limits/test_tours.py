"""What a customer may have over all events of a tour, asked for at several of them at once."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reservations import payment, repository
from tests.inventory.conftest import EVENT, Inventory, event_file

TOUR = {"tour_id": "tour-1", "tickets_per_customer": 4}
NAME = "tour_tickets_per_customer"


async def on_tour(inventory: Inventory, *others: str, **sales: Any) -> None:
    for event_id in (EVENT, *others):
        assert (await inventory.put({**event_file(tour=TOUR, **sales), "event_id": event_id})).status_code == 200
    await inventory.state.redis_monitor.check()


async def hold(inventory: Inventory, event_id: str, quantity: int, holder: str = "fan") -> str:
    answer = await inventory.reserve(holder, event_id=event_id, ga_section="GA1", ga_quantity=quantity)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reservation_id"])


async def begin(inventory: Inventory, reservation_id: str, customer: str = "one-customer") -> Any:
    return await inventory.step("begin-payment", reservation_id, f"order-{reservation_id}", customer)


@pytest.mark.parametrize("guarded", [True, False])
async def test_two_payments_of_one_customer_at_two_events_take_turns(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    await on_tour(still, "show-2")
    slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.3))"
    monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    if not guarded:  # a lock for each event
        of_tour, lock = "coalesce('tour:' || e.tour_id, e.event_id)", str(repository.LOCK_FOR_PAYMENT)
        assert of_tour in lock
        monkeypatch.setattr(repository, "LOCK_FOR_PAYMENT", text(lock.replace(of_tour, "e.event_id")))
    held = [await hold(still, event_id, 3) for event_id in (EVENT, "show-2")]
    begun = await asyncio.gather(*(begin(still, reservation_id) for reservation_id in held))
    words = Counter(step["outcome"] for step in begun)
    if not guarded:
        assert words == {"done": 2}, "six tickets where four are allowed"
        return
    assert words == {"done": 1, "limit-exceeded": 1}
    over = next(step["over"] for step in begun if step["outcome"] == "limit-exceeded")
    assert over == {"limit": NAME, "allowed": 4, "used": 3}


async def test_two_events_in_one_batch_are_counted_once_each(still: Inventory) -> None:
    await on_tour(still, "show-2")
    first = await hold(still, EVENT, 2, "first")
    assert (await begin(still, first))["outcome"] == "done"
    held = [await hold(still, EVENT, 1, "second"), await hold(still, "show-2", 1), await hold(still, "show-2", 1, "x")]
    await still.step("confirm", first, f"order-{first}")
    steps = [{"reservation_id": r, "order_reference": f"order-{r}", "customer_key": "one-customer"} for r in held]
    steps[2]["customer_key"] = "somebody-else"
    done = (await still.ask("/reservations/begin-payment", {"steps": steps}))["steps"]
    assert [step["outcome"] for step in done] == ["done", "done", "done"], "two bought, one and one"
    last = await begin(still, await hold(still, "show-2", 1, "third"))
    assert (last["outcome"], last["over"]["limit"]) == ("limit-exceeded", "open_orders_per_customer")
    await still.step("confirm", held[1], f"order-{held[1]}")
    last = await begin(still, await hold(still, "show-2", 1, "fourth"))
    assert (last["outcome"], last["over"]) == ("limit-exceeded", {"limit": NAME, "allowed": 4, "used": 4})


async def test_what_is_released_or_of_another_tour_does_not_count(still: Inventory) -> None:
    await on_tour(still, "show-2")
    alone = {**event_file(tour={**TOUR, "tour_id": "tour-2"}), "event_id": "show-3"}
    assert (await still.put(alone)).status_code == 200
    await still.state.redis_monitor.check()
    first = await hold(still, EVENT, 4)
    assert (await begin(still, first))["outcome"] == "done"
    second = await hold(still, "show-2", 1)
    assert (await begin(still, second))["over"]["used"] == 4
    assert (await begin(still, await hold(still, "show-3", 4)))["outcome"] == "done", "another tour"
    await still.step("release", first, f"order-{first}")
    assert (await begin(still, second))["outcome"] == "done"


async def test_the_limit_of_a_tour_is_shown_and_changes_with_the_event_file(still: Inventory) -> None:
    await on_tour(still)
    shown = (await still.fans.get(f"/events/{EVENT}")).json()
    assert shown["limits"][NAME] == 4
    assert (await still.put(event_file(tour=TOUR))).json()["changed"] is False
    assert (await still.put(event_file())).json()["changed"] is True
    await still.state.redis_monitor.check()
    assert (await still.fans.get(f"/events/{EVENT}")).json()["limits"][NAME] == 0
