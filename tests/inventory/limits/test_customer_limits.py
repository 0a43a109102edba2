"""The limits of a customer, at one event and over a tour, against concurrent requests and after every release."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.inventory.actions import buy, count_customers_slowly, usage
from tests.inventory.conftest import EVENT, Inventory, event_file

SEATS = [
    *(f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)),
    *(f"B-1-{n}" for n in range(1, 5)),
    "B-2-1",
]


async def send_twenty(inventory: Inventory, holder: str = "fan") -> Counter[str]:
    """Twenty concurrent requests of one holder, each for another seat; counts the answers."""
    answers = await asyncio.gather(*(inventory.reserve(holder, seats=[seat]) for seat in SEATS))
    assert {answer.json()["allowed"] for answer in answers if answer.status_code == 409} <= {1, 6}
    return Counter(str(answer.json().get("limit", answer.status_code)) for answer in answers)


@pytest.mark.parametrize(
    ("live_max", "expected"),
    [(1, {"201": 1, "active_reservations_per_customer": 19}), (0, {"201": 6, "tickets_per_customer": 14})],
)
async def test_twenty_concurrent_requests_hold_what_the_limits_allow(
    inventory: Inventory, live_max: int, expected: dict[str, int]
) -> None:
    await inventory.put(event_file(active_reservations_per_customer=live_max))
    assert await send_twenty(inventory) == expected
    assert await inventory.violations() == []


async def test_a_limit_of_zero_is_no_limit(inventory: Inventory) -> None:
    none = {"tickets_per_customer": 0, "active_reservations_per_customer": 0, "open_orders_per_customer": 0}
    await inventory.put(event_file(**none))
    ids = await asyncio.gather(*(inventory.hold(seats=[seat]) for seat in SEATS))
    begun = await asyncio.gather(*(inventory.outcome("begin-payment", r, f"order-{r}", "one-customer") for r in ids))
    assert set(begun) == {"done"}


@pytest.mark.parametrize("key", ["once", None])
async def test_twenty_identical_concurrent_requests_make_one_reservation(inventory: Inventory, key: str | None) -> None:
    ids = await asyncio.gather(*(inventory.hold(key=key) for _ in SEATS))
    assert len(set(ids)) == 1
    assert await usage(inventory) == (3, 1)


async def test_a_sale_counts_as_tickets_but_not_as_a_live_reservation(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(seats=["A-1-1"], ga_section="GA1", ga_quantity=3)
    await inventory.step("begin-payment", reservation_id, "order-1", "c")
    assert (await inventory.reserve(seats=["A-1-2"])).json()["limit"] == "active_reservations_per_customer"
    await inventory.step("confirm", reservation_id, "order-1")
    assert await usage(inventory) == (4, 0)
    assert (await inventory.reserve(seats=["A-2-1", "A-2-2", "A-2-3"])).json()["limit"] == "tickets_per_customer"
    assert (await inventory.reserve(seats=["A-2-1", "A-2-2"])).status_code == 201


async def test_twenty_holders_of_one_customer_pay_for_six_tickets(inventory: Inventory) -> None:
    await inventory.put(event_file(open_orders_per_customer=0))
    ids = [await inventory.hold(f"fan-{seat}", seats=[seat]) for seat in SEATS]

    async def begin(ids: list[str]) -> dict[str, dict[str, object]]:
        steps = (inventory.step("begin-payment", r, f"order-{r}", "one-customer") for r in ids)
        return dict(zip(ids, await asyncio.gather(*steps), strict=True))

    begun = await begin(ids)
    paying = [r for r in ids if begun[r]["outcome"] == "done"]
    assert len(paying) == 6
    rest = [r for r in ids if r not in paying]
    over = {"limit": "tickets_per_customer", "allowed": 6, "used": 6}
    assert all((begun[r]["outcome"], begun[r]["over"]) == ("limit-exceeded", over) for r in rest)
    assert await inventory.outcome("begin-payment", rest.pop(), "order-of-another", "another") == "done"
    await buy(inventory, paying[0], f"order-{paying[0]}")
    await inventory.step("release", paying[1], f"order-{paying[1]}")
    again = Counter(step["outcome"] for step in (await begin(rest)).values())
    assert again == {"done": 1, "limit-exceeded": 12}, "one was released"


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
