"""Steps of a payment: every step, by the owning order, by another order, and repeated."""

from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.inventory.conftest import EVENT, Inventory

# Steps of `order-1`, which begins to pay first, and of `order-2`, with their outcomes; then the status of the hold.
SEQUENCES = {
    "a sale": ("confirmed", [
        ("begin-payment", 1, "done"), ("begin-payment", 1, "done"), ("begin-payment", 2, "payment-in-progress"),
        ("end-payment", 2, "not-owner"), ("confirm", 2, "not-owner"), ("release", 2, "not-owner"),
        ("reacquire", 2, "payment-in-progress"), ("confirm", 1, "done"), ("confirm", 1, "done"),
        ("confirm", 2, "not-owner"), ("begin-payment", 1, "done"), ("begin-payment", 2, "ended"),
        ("end-payment", 1, "ended"), ("release", 1, "ended"), ("reacquire", 1, "done"), ("reacquire", 2, "not-owner"),
    ]),
    "a payment that ended": ("paying", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("end-payment", 1, "done"),
        ("confirm", 1, "not-owner"), ("end-payment", 2, "not-owner"), ("release", 2, "not-owner"),
        ("begin-payment", 2, "done"), ("end-payment", 1, "not-owner"), ("confirm", 1, "not-owner"),
        ("release", 1, "not-owner"),
    ]),
    "a release after a payment": ("cancelled", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("release", 1, "done"), ("release", 1, "done"),
    ]),
    "a release": ("cancelled", [
        ("begin-payment", 1, "done"), ("release", 1, "done"), ("release", 1, "done"), ("confirm", 1, "ended"),
        ("end-payment", 1, "ended"), ("begin-payment", 2, "ended"), ("release", 2, "ended"),
    ]),
    "a late payment": ("confirmed", [
        ("begin-payment", 1, "done"), ("release", 1, "done"), ("reacquire", 1, "done"), ("reacquire", 1, "done"),
        ("begin-payment", 2, "ended"),
    ]),
    "a payment that was believed late": ("confirmed", [("begin-payment", 1, "done"), ("reacquire", 1, "done")]),
    "a late payment of a hold that goes on": ("confirmed", [
        ("begin-payment", 1, "done"), ("end-payment", 1, "done"), ("reacquire", 2, "done"), ("reacquire", 2, "done"),
    ]),
}  # fmt: skip
STOCK = {
    "confirmed": [(14, 0, 1), (18, 0, 2)],
    "paying": [(14, 1, 0), (18, 2, 0)],
    "cancelled": [(15, 0, 0), (20, 0, 0)],
}


@pytest.mark.parametrize("sequence", SEQUENCES)
async def test_only_the_order_that_began_a_payment_can_continue_it(inventory: Inventory, sequence: str) -> None:
    """The card of the first order may be charged at this moment: losing its hold would lose stock that is paid for."""
    reservation_id = await inventory.hold()
    status, steps = SEQUENCES[sequence]
    for n, (verb, order, outcome) in enumerate(steps):
        assert await inventory.outcome(verb, reservation_id, f"order-{order}") == outcome, f"{n}: {verb} {order}"
    sections = (await inventory.post_internal("/stock", {"event_id": EVENT}))["sections"]
    stock = [(s["available"], s["held"], s["sold"]) for s in sections if s["section_id"] != "B"]
    assert stock == STOCK[status]
    assert await inventory.violations(at_rest=status != "paying") == []


async def test_the_payment_time_is_granted_once(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(500_000)
    begun = [await inventory.step("begin-payment", reservation_id, "order-1") for _ in range(2)]
    await inventory.step("end-payment", reservation_id, "order-1")
    inventory.travel(100_000)
    begun.append(await inventory.step("begin-payment", reservation_id, "order-2"))
    assert [(step["outcome"], step["status"]) for step in begun] == [("done", "paying")] * 3
    assert len({step["reserved_until_ms"] for step in begun}) == 1


async def test_a_payment_under_way_gets_more_time_while_it_is_held(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    assert await inventory.outcome("extend-payment", reservation_id, "order-1") == "not-owner", "not paying yet"
    first = await inventory.step("begin-payment", reservation_id, "order-1")
    inventory.travel(500_000)
    assert await inventory.outcome("extend-payment", reservation_id, "order-2") == "not-owner"
    longer = await inventory.step("extend-payment", reservation_id, "order-1")
    assert (longer["outcome"], longer["status"]) == ("done", "paying")
    assert longer["reserved_until_ms"] > first["reserved_until_ms"]
    inventory.travel(longer["reserved_until_ms"] - first["reserved_until_ms"])
    assert await inventory.violations() == [], "Redis has the later end, too"
    inventory.travel(1_000_000)
    assert await inventory.outcome("extend-payment", reservation_id, "order-1") == "ended"


async def test_a_late_payment_never_takes_stock_of_another_holder(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    for verb in ("begin-payment", "release"):
        await inventory.step(verb, reservation_id, "order-1")
    await inventory.hold("other")
    assert await inventory.outcome("reacquire", reservation_id, "order-1") == "taken"
    assert await inventory.counts("GA1") == (18, 2), "all or nothing"
    assert await inventory.violations() == []


async def test_an_unavailable_redis_never_blocks_a_payment(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation_id = await inventory.hold()
    for verb in ("begin_payment", "confirm"):
        monkeypatch.setattr(inventory.state.redis_stock, verb, AsyncMock(side_effect=RedisConnectionError))
    for verb in ("begin-payment", "confirm"):
        assert await inventory.outcome(verb, reservation_id, "order-1") == "done"


async def test_steps_find_a_reservation_by_its_event_and_those_of_the_release_before_without(
    inventory: Inventory,
) -> None:
    reservation_id = await inventory.hold()
    assert (await inventory.step("begin-payment", reservation_id, "order-1", event_id="show-2"))["outcome"] == "unknown"
    step = {"reservation_id": reservation_id, "order_reference": "order-1"}
    for verb in ("begin-payment", "confirm", "returns"):
        answer = await inventory.post_internal(f"/reservations/{verb}", {"steps": [step], "reason": "refunded"})
        assert answer["steps"][0]["outcome"] == "done"
    for event_id, status in ((EVENT, "returned"), (None, "returned"), ("show-2", None)):
        question = {"reservation_ids": [reservation_id], "event_ids": [event_id]}
        (found,) = (await inventory.post_internal("/reservations/read", question))["reservations"]
        assert (found and found["status"]) == status


async def test_every_step_answers_unknown_for_an_unknown_reservation(inventory: Inventory) -> None:
    for verb in ("begin-payment", "end-payment", "confirm", "release", "reacquire"):
        assert await inventory.step(verb, "0" * 32, "order-1") == {
            "outcome": "unknown", "order_reference": None, "status": None, "reserved_until_ms": None, "over": None
        }  # fmt: skip
    assert await inventory.post_internal("/reservations/read", {"reservation_ids": ["x"]}) == {"reservations": [None]}


async def test_a_payment_begins_within_the_hold_and_its_grace_only(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(610_000)
    assert await inventory.outcome("begin-payment", reservation_id, "order-1") == "ended"
    assert await inventory.counts("GA1") == (18, 2), "the sweep releases it, not the payment"
