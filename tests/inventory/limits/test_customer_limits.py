"""The limits of a customer, against twenty concurrent requests and after every release of stock."""

import asyncio
from collections import Counter

import pytest

from tests.inventory.actions import buy, usage
from tests.inventory.conftest import Inventory, event_file

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
