"""Steps of a payment: every step, by the owning order, by another order, and repeated."""

import asyncio
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text

from services.inventory.reservations import payment, repository
from tests.inventory.conftest import EVENT, Inventory, event_file


async def hold(inventory: Inventory, holder: str = "fan", seat: str = "A-1-1") -> str:
    return await inventory.hold(holder, seats=[seat], ga_section="GA1", ga_quantity=1)


async def test_only_the_order_that_began_a_payment_can_continue_it(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    first = await inventory.step("begin-payment", reservation_id, "order-1")
    assert first["outcome"] == "done"
    again = await inventory.step("begin-payment", reservation_id, "order-1")
    assert (again["outcome"], again["reserved_until_ms"]) == ("done", first["reserved_until_ms"])
    other = await inventory.step("begin-payment", reservation_id, "order-2")
    assert (other["outcome"], other["order_reference"]) == ("payment-in-progress", "order-1")
    for verb in ("end-payment", "confirm", "release"):
        assert (await inventory.step(verb, reservation_id, "order-2"))["outcome"] == "not-owner"
    assert (await inventory.step("reacquire", reservation_id, "order-2"))["outcome"] == "payment-in-progress"
    assert (await inventory.step("confirm", reservation_id, "order-1"))["outcome"] == "done"
    assert (await inventory.step("confirm", reservation_id, "order-1"))["outcome"] == "done"
    assert (await inventory.step("confirm", reservation_id, "order-2"))["outcome"] == "not-owner"
    assert (await inventory.step("begin-payment", reservation_id, "order-2"))["outcome"] == "ended"
    assert (await inventory.step("release", reservation_id, "order-1"))["outcome"] == "ended"
    assert await inventory.violations(at_rest=True) == []


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("verb", ["begin-payment", "end-payment", "confirm", "release"])
async def test_another_order_cannot_change_a_payment_in_progress(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, verb: str, guarded: bool
) -> None:
    """The card of the first order may be charged at this moment: losing its hold would lose stock that is paid for."""
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    with monkeypatch.context() as unguarded:
        if not guarded:
            _skip_owner_checks(unguarded)
        outcome = (await inventory.step(verb, reservation_id, "order-2"))["outcome"]
    assert outcome == ("done" if not guarded else "payment-in-progress" if verb == "begin-payment" else "not-owner")
    first = await inventory.step("confirm", reservation_id, "order-1")
    paid = (first["outcome"], first["order_reference"], first["status"])
    assert (paid == ("done", "order-1", "confirmed")) == guarded


def _skip_owner_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any order may take every step of a payment in progress."""
    for name in ("BEGIN", "END", "CONFIRM", "RELEASE"):
        monkeypatch.setattr(payment, name, getattr(payment, name)._replace(by_any=payment.LIVE))


async def test_the_payment_time_is_granted_once(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    inventory.travel(500_000)
    begun = await inventory.step("begin-payment", reservation_id, "order-1")
    until_ms = begun["reserved_until_ms"]
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "done"
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "done"
    inventory.travel(100_000)
    second = await inventory.step("begin-payment", reservation_id, "order-2")
    assert (second["outcome"], second["reserved_until_ms"]) == ("done", until_ms)
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "not-owner"


async def test_a_released_payment_releases_its_stock_once(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    for _ in range(2):
        done = await inventory.step("release", reservation_id, "order-1")
        assert (done["outcome"], done["status"]) == ("done", "cancelled")
    assert (await inventory.counts("A"), await inventory.counts("GA1")) == ((15, 0), (20, 0))
    assert (await inventory.step("confirm", reservation_id, "order-1"))["outcome"] == "ended"
    assert (await inventory.step("begin-payment", reservation_id, "order-2"))["outcome"] == "ended"
    assert await inventory.violations(at_rest=True) == []


async def test_a_late_payment_reacquires_its_stock_while_it_is_free(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")
    for _ in range(2):
        done = await inventory.step("reacquire", reservation_id, "order-1")
        assert (done["outcome"], done["status"]) == ("done", "confirmed")
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [s["sold"] for s in stock["sections"]] == [1, 0, 1]
    assert await inventory.violations(at_rest=True) == []


async def test_a_late_payment_never_takes_stock_of_another_holder(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")
    await hold(inventory, "other")
    assert (await inventory.step("reacquire", reservation_id, "order-1"))["outcome"] == "taken"
    assert await inventory.counts("GA1") == (19, 1), "all or nothing"
    assert await inventory.violations() == []


async def test_an_unavailable_redis_never_blocks_a_payment(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation_id = await hold(inventory)
    for verb in ("begin_payment", "confirm"):
        monkeypatch.setattr(inventory.state.redis_stock, verb, AsyncMock(side_effect=RedisConnectionError))
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, "order-1"))["outcome"] == "done"


@pytest.mark.parametrize("guarded", [True, False])
async def test_concurrent_payments_of_one_customer_keep_the_limit_across_holders(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Five holders of one customer begin to pay at once: one succeeds. Without the customer lock, more succeed."""
    if not guarded:
        slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.4))"
        monkeypatch.setattr(payment, "lock_for_payment", repository.lock_reservations)
        monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    ids = [await hold(inventory, f"fan-{i}", f"A-1-{i + 1}") for i in range(5)]
    steps = await asyncio.gather(
        *(inventory.step("begin-payment", r, f"order-{i}", "same-customer") for i, r in enumerate(ids))
    )
    begun = [step["outcome"] for step in steps].count("done")
    assert begun == 1 if guarded else begun > 1


async def test_a_customer_cannot_pay_for_more_tickets_than_allowed(inventory: Inventory) -> None:
    await inventory.put(event_file(tickets_per_customer=3, open_orders_per_customer=0))
    first, second = await hold(inventory, "one"), await hold(inventory, "two", "A-1-2")
    assert (await inventory.step("begin-payment", first, "order-1", "c"))["outcome"] == "done"
    await inventory.step("confirm", first, "order-1")
    refused = await inventory.step("begin-payment", second, "order-2", "c")
    over = {"limit": "tickets_per_customer", "allowed": 3, "used": 2}
    assert (refused["outcome"], refused["over"]) == ("limit-exceeded", over)
    assert (await inventory.step("begin-payment", second, "order-2", "d"))["outcome"] == "done"


async def test_every_step_answers_unknown_for_an_unknown_reservation(inventory: Inventory) -> None:
    for verb in ("begin-payment", "end-payment", "confirm", "release", "reacquire"):
        assert await inventory.step(verb, "0" * 32, "order-1") == {
            "outcome": "unknown", "order_reference": None, "status": None, "reserved_until_ms": None, "over": None
        }  # fmt: skip
    assert await inventory.post_internal("/reservations/read", {"reservation_ids": ["x"]}) == {"reservations": [None]}
