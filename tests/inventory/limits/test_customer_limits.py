"""The limits of a customer, against twenty concurrent requests and after every release of stock."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import text

from services.inventory.redis_stock.client import load_script
from services.inventory.reservations import payment, repository
from shared.redis.scripts import Script
from tests.inventory.actions import rebuild, usage
from tests.inventory.conftest import Inventory, event_file

SEATS = [
    *(f"A-{row}-{number}" for row in (1, 2, 3) for number in range(1, 6)),
    *(f"B-1-{n}" for n in range(1, 5)),
    "B-2-1",
]
LIVE_CHECK = (
    "  if #live >= request.live_max then return deny('limit-exceeded', 'active_reservations_per_customer') end\n"
)
TICKETS_CHECK = "  if request.tickets_max > 0 and had + quantity > request.tickets_max then\n"


async def send_twenty(inventory: Inventory, holder: str = "fan") -> Counter[str]:
    """Twenty concurrent requests of one holder, each for another seat; counts the answers."""
    answers = await asyncio.gather(*(inventory.reserve(holder, seats=[seat]) for seat in SEATS))
    return Counter(str(answer.json().get("limit", answer.status_code)) for answer in answers)


@pytest.mark.parametrize(
    ("live_max", "removed_check", "expected"),
    [
        (1, None, {"201": 1, "active_reservations_per_customer": 19}),
        (1, (LIVE_CHECK, ""), {"201": 6, "tickets_per_customer": 14}),
        (0, None, {"201": 6, "tickets_per_customer": 14}),
        (0, (TICKETS_CHECK, "  if false then\n"), {"201": 20}),
    ],
)
async def test_twenty_concurrent_requests_hold_what_the_limits_allow(
    manual: Inventory, live_max: int, removed_check: tuple[str, str] | None, expected: dict[str, int]
) -> None:
    await manual.put(event_file(active_reservations_per_customer=live_max))
    if removed_check:
        source = load_script("hold").source
        assert removed_check[0] in source
        script = Script("Redis without a limit", source.replace(*removed_check))
        manual.state.redis_stock.scripts["hold"] = script
    assert await send_twenty(manual) == expected
    assert await manual.violations() == []


async def test_a_limit_of_zero_is_no_limit(manual: Inventory) -> None:
    none = {"tickets_per_customer": 0, "active_reservations_per_customer": 0, "open_orders_per_customer": 0}
    await manual.put(event_file(**none))
    answers = await asyncio.gather(*(manual.reserve(seats=[seat]) for seat in SEATS))
    assert {answer.status_code for answer in answers} == {201}
    ids = [answer.json()["reservation_id"] for answer in answers]
    begun = await asyncio.gather(*(manual.step("begin-payment", r, f"order-{r}", "one-customer") for r in ids))
    assert {step["outcome"] for step in begun} == {"done"}


async def test_twenty_identical_concurrent_requests_make_one_reservation(manual: Inventory) -> None:
    answers = await asyncio.gather(*(manual.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=2) for _ in SEATS))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["reservation_id"] for answer in answers}) == 1
    assert await usage(manual) == (3, 1)


@pytest.mark.parametrize("end", ["fan", "order", "expiry", "operator"])
async def test_a_hold_that_ended_unsold_no_longer_counts(manual: Inventory, end: str) -> None:
    for _ in range(2):  # twice, so that stock released twice would show
        reservation_id = await manual.hold(seats=["A-1-1"], ga_section="GA1", ga_quantity=5)
        assert (await manual.reserve(seats=["B-1-1"])).json()["limit"] == "active_reservations_per_customer"
        if end == "fan":
            await manual.fan_request("DELETE", reservation_id)
        elif end == "operator":
            await manual.admin("POST", f"/reservations/{reservation_id}/release")
        elif end == "order":
            await manual.step("begin-payment", reservation_id, f"order-{reservation_id}", "c")
            await manual.step("release", reservation_id, f"order-{reservation_id}")
        else:
            manual.travel(606_000)
            await manual.state.expiry_worker.sweep()
        assert await usage(manual) == (0, 0)
    last = await manual.hold(seats=["A-2-1"], ga_section="GA1", ga_quantity=5)
    begun = await manual.step("begin-payment", last, "last-order", "c")
    assert begun["outcome"] == "done", "neither the holder nor the customer has anything else"


async def test_a_sale_counts_as_tickets_but_not_as_a_live_reservation(manual: Inventory) -> None:
    reservation_id = await manual.hold(seats=["A-1-1"], ga_section="GA1", ga_quantity=3)
    await manual.step("begin-payment", reservation_id, "order-1", "c")
    assert (await manual.reserve(seats=["A-1-2"])).json()["limit"] == "active_reservations_per_customer"
    await manual.step("confirm", reservation_id, "order-1")
    assert await usage(manual) == (4, 0)
    assert (await manual.reserve(seats=["A-2-1", "A-2-2", "A-2-3"])).json()["limit"] == "tickets_per_customer"
    assert (await manual.reserve(seats=["A-2-1", "A-2-2"])).status_code == 201


async def test_a_rebuilt_redis_stock_keeps_the_customer_limits(manual: Inventory) -> None:
    bought = await manual.hold(seats=["B-2-4"], ga_section="GA1", ga_quantity=3)
    await manual.step("begin-payment", bought, "order-1")
    await manual.step("confirm", bought, "order-1")
    await manual.hold(seats=["A-2-1"])
    before = await usage(manual)
    await rebuild(manual)
    assert before == await usage(manual) == (5, 1)
    assert await send_twenty(manual) == {"active_reservations_per_customer": 19, "201": 1}, (
        "the one returns the hold that exists"
    )
    await manual.put(event_file(active_reservations_per_customer=0))
    assert await send_twenty(manual) == {"201": 2, "tickets_per_customer": 18}, "one more, and the hold that exists"


@pytest.mark.parametrize("guarded", [True, False])
async def test_twenty_holders_of_one_customer_pay_for_six_tickets(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    await manual.put(event_file(open_orders_per_customer=0))
    if not guarded:
        monkeypatch.setattr(payment, "lock_for_payment", repository.lock_reservations)
        slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.3))"
        monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    ids = [await manual.hold(f"fan-{seat}", seats=[seat]) for seat in SEATS]
    begun = await asyncio.gather(*(manual.step("begin-payment", r, f"order-{r}", "one-customer") for r in ids))
    outcomes = Counter(step["outcome"] for step in begun)
    if not guarded:
        assert outcomes["done"] > 6
        return
    assert outcomes == {"done": 6, "limit-exceeded": 14}
    paid = [r for r, step in zip(ids, begun, strict=True) if step["outcome"] == "done"]
    await manual.step("confirm", paid[0], f"order-{paid[0]}")
    await manual.step("release", paid[1], f"order-{paid[1]}")
    rest = [r for r in ids if r not in paid]
    again = await asyncio.gather(*(manual.step("begin-payment", r, f"order-{r}", "one-customer") for r in rest))
    assert Counter(step["outcome"] for step in again) == {"done": 1, "limit-exceeded": 13}, "one was released"
