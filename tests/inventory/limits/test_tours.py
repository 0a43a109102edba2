"""The limit of a customer over all events of a tour, against concurrent payments at several of them."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reservations import payment, repository
from tests.inventory.conftest import EVENT, Inventory, event_file

TOUR = {"tour_id": "tour-1", "tickets_per_customer": 4}
LIMIT = "tour_tickets_per_customer"


async def put_on_sale(inventory: Inventory, *others: str, **sales: Any) -> None:
    for event_id in (EVENT, *others):
        assert (await inventory.put({**event_file(tour=TOUR, **sales), "event_id": event_id})).status_code == 200
    await inventory.state.redis_monitor.check()


async def hold(inventory: Inventory, event_id: str, quantity: int, holder: str = "fan") -> str:
    return await inventory.hold(holder, event_id=event_id, ga_section="GA1", ga_quantity=quantity)


async def begin(inventory: Inventory, reservation_id: str, customer: str = "one-customer") -> Any:
    return await inventory.step("begin-payment", reservation_id, f"order-{reservation_id}", customer)


@pytest.mark.parametrize("guarded", [True, False])
async def test_concurrent_payments_at_two_events_of_a_tour_share_one_limit(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    await put_on_sale(manual, "show-2")
    slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.3))"
    monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    if not guarded:  # each event has a lock of its own
        tour_key, lock = "coalesce('tour:' || e.tour_id, e.event_id)", str(repository.LOCK_FOR_PAYMENT)
        assert tour_key in lock
        monkeypatch.setattr(repository, "LOCK_FOR_PAYMENT", text(lock.replace(tour_key, "e.event_id")))
    held = [await hold(manual, event_id, 3) for event_id in (EVENT, "show-2")]
    begun = await asyncio.gather(*(begin(manual, reservation_id) for reservation_id in held))
    outcomes = Counter(step["outcome"] for step in begun)
    if not guarded:
        assert outcomes == {"done": 2}, "six tickets, although the limit is four"
        return
    assert outcomes == {"done": 1, "limit-exceeded": 1}
    over = next(step["over"] for step in begun if step["outcome"] == "limit-exceeded")
    assert over == {"limit": LIMIT, "allowed": 4, "used": 3}


async def test_a_batch_with_two_events_counts_each_event_once(manual: Inventory) -> None:
    await put_on_sale(manual, "show-2")
    first = await hold(manual, EVENT, 2, "first")
    assert (await begin(manual, first))["outcome"] == "done"
    held = [
        await hold(manual, EVENT, 1, "second"),
        await hold(manual, "show-2", 1),
        await hold(manual, "show-2", 1, "x"),
    ]
    await manual.step("confirm", first, f"order-{first}")
    steps = [{"reservation_id": r, "order_reference": f"order-{r}", "customer_key": "one-customer"} for r in held]
    steps[2]["customer_key"] = "somebody-else"
    steps = (await manual.post_internal("/reservations/begin-payment", {"steps": steps}))["steps"]
    assert [step["outcome"] for step in steps] == ["done", "done", "done"], (
        "two are bought already, each event adds one"
    )
    last = await begin(manual, await hold(manual, "show-2", 1, "third"))
    assert (last["outcome"], last["over"]["limit"]) == ("limit-exceeded", "open_orders_per_customer")
    await manual.step("confirm", held[1], f"order-{held[1]}")
    last = await begin(manual, await hold(manual, "show-2", 1, "fourth"))
    assert (last["outcome"], last["over"]) == ("limit-exceeded", {"limit": LIMIT, "allowed": 4, "used": 4})


async def test_released_tickets_and_other_tours_do_not_count(manual: Inventory) -> None:
    await put_on_sale(manual, "show-2")
    other_tour = {**event_file(tour={**TOUR, "tour_id": "tour-2"}), "event_id": "show-3"}
    assert (await manual.put(other_tour)).status_code == 200
    await manual.state.redis_monitor.check()
    first = await hold(manual, EVENT, 4)
    assert (await begin(manual, first))["outcome"] == "done"
    second = await hold(manual, "show-2", 1)
    assert (await begin(manual, second))["over"]["used"] == 4
    assert (await begin(manual, await hold(manual, "show-3", 4)))["outcome"] == "done", "another tour"
    await manual.step("release", first, f"order-{first}")
    assert (await begin(manual, second))["outcome"] == "done"


async def test_the_catalogue_shows_the_tour_limit_of_the_event_file(manual: Inventory) -> None:
    await put_on_sale(manual)
    shown = (await manual.fans.get(f"/events/{EVENT}")).json()
    assert shown["limits"][LIMIT] == 4
    assert (await manual.put(event_file(tour=TOUR))).json()["changed"] is False
    assert (await manual.put(event_file())).json()["changed"] is True
    await manual.state.redis_monitor.check()
    assert (await manual.fans.get(f"/events/{EVENT}")).json()["limits"][LIMIT] == 0
