"""Payment owns a hold by name: every step, every wrong order, every repetition."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reservations import payment, repository
from shared.contracts.inventory import PaymentStep
from tests.inventory.conftest import EVENT, Inventory, event_file


async def hold(inventory: Inventory, holder: str = "fan", seat: str = "A-1-1") -> str:
    return str(
        (await inventory.reserve(holder, seats=[seat], ga_section="GA1", ga_quantity=1)).json()["reservation_id"]
    )


async def test_only_the_order_that_began_may_go_on(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    first = await inventory.step("begin-payment", reservation_id, "order-1")
    assert first["outcome"] == "done"
    again = await inventory.step("begin-payment", reservation_id, "order-1")
    assert (again["outcome"], again["reserved_until_ms"]) == (
        "done", first["reserved_until_ms"]
    )  # fmt: skip
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
    assert await inventory.broken(at_rest=True) == []


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("verb", ["begin-payment", "end-payment", "confirm", "release"])
async def test_another_order_cannot_touch_a_payment_under_way(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, verb: str, guarded: bool
) -> None:
    """The first order's card may be charged at this moment. Whoever takes its hold, takes what will have been paid."""
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    with monkeypatch.context() as unguarded:
        if not guarded:
            _believe_every_order(unguarded)
        word = (await inventory.step(verb, reservation_id, "order-2"))["outcome"]
    assert word == ("done" if not guarded else "payment-in-progress" if verb == "begin-payment" else "not-owner")
    first = await inventory.step("confirm", reservation_id, "order-1")
    paid = (first["outcome"], first["order_reference"], first["status"])
    assert (paid == ("done", "order-1", "confirmed")) == guarded


def _believe_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step looks at whose payment it is: each is done as if the asking order had begun it."""
    begin = payment.Payments._begin

    def believing(decide: Any) -> Any:
        def step_of_anybody(turn: Any, step: PaymentStep) -> str:
            turn.records[step.reservation_id].order_reference = step.order_reference
            return str(decide(turn, step))

        return step_of_anybody

    def begin_of_anybody(self: payment.Payments, turn: Any, step: PaymentStep, usage: Any) -> str:
        turn.records[step.reservation_id].status = "pending_payment"
        return begin(self, turn, step, usage)

    for name in ("_end", "_confirm", "_release"):
        monkeypatch.setattr(payment, name, believing(getattr(payment, name)))
    monkeypatch.setattr(payment.Payments, "_begin", begin_of_anybody)


async def test_time_to_pay_is_given_once(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    inventory.travel(500_000)
    begun = await inventory.step("begin-payment", reservation_id, "order-1")
    until_ms = begun["reserved_until_ms"]
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "done"
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "done"
    inventory.travel(100_000)
    next_one = await inventory.step("begin-payment", reservation_id, "order-2")
    assert (next_one["outcome"], next_one["reserved_until_ms"]) == ("done", until_ms)
    assert (await inventory.step("end-payment", reservation_id, "order-1"))["outcome"] == "not-owner"


async def test_a_released_payment_gives_everything_back_once(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    for _ in range(2):
        done = await inventory.step("release", reservation_id, "order-1")
        assert (done["outcome"], done["status"]) == ("done", "cancelled")
    assert (await inventory.left("A"), await inventory.left("GA1")) == ((15, 0), (20, 0))
    assert (await inventory.step("confirm", reservation_id, "order-1"))["outcome"] == "ended"
    assert (await inventory.step("begin-payment", reservation_id, "order-2"))["outcome"] == "ended"
    assert await inventory.broken(at_rest=True) == []


async def test_a_late_success_takes_its_places_again_while_they_are_free(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")
    for _ in range(2):
        done = await inventory.step("reacquire", reservation_id, "order-1")
        assert (done["outcome"], done["status"]) == ("done", "confirmed")
    stock = await inventory.ask("/stock", {"event_id": EVENT})
    assert [s["sold"] for s in stock["sections"]] == [1, 0, 1]
    assert await inventory.broken(at_rest=True) == []


async def test_a_late_success_never_takes_what_went_to_somebody_else(inventory: Inventory) -> None:
    reservation_id = await hold(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")
    await hold(inventory, "other")
    assert (await inventory.step("reacquire", reservation_id, "order-1"))["outcome"] == "taken"
    assert await inventory.left("GA1") == (19, 1), "all or nothing"
    assert await inventory.broken() == []


async def test_a_closed_redis_never_blocks_a_payment(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    from redis.exceptions import ConnectionError as Away

    reservation_id = await hold(inventory)

    async def away(*args: object, **named: object) -> None:
        raise Away

    for verb in ("begin_payment", "confirm"):
        monkeypatch.setattr(inventory.state.redis_stock, verb, away)
    for verb in ("begin-payment", "confirm"):
        assert (await inventory.step(verb, reservation_id, "order-1"))["outcome"] == "done"


@pytest.mark.parametrize("guarded", [True, False])
async def test_limits_across_holders_hold_in_parallel(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Five holders with one e-mail pay at once: one open order. Without the customer's lock the test notices."""
    if not guarded:
        slowly = str(payment.COUNT_CUSTOMERS) + " WHERE (SELECT true FROM pg_sleep(0.4))"
        monkeypatch.setattr(payment, "lock_for_payment", repository.lock_reservations)
        monkeypatch.setattr(payment, "COUNT_CUSTOMERS", text(slowly))
    ids = [await hold(inventory, f"fan-{i}", f"A-1-{i + 1}") for i in range(5)]
    words = await asyncio.gather(
        *(inventory.step("begin-payment", r, f"order-{i}", "same-customer") for i, r in enumerate(ids))
    )
    begun = [word["outcome"] for word in words].count("done")
    assert begun == 1 if guarded else begun > 1


async def test_a_customer_never_has_more_tickets_than_allowed(inventory: Inventory) -> None:
    await inventory.put(event_file(tickets_per_customer=3, open_orders_per_customer=0))
    first, second = await hold(inventory, "one"), await hold(inventory, "two", "A-1-2")
    assert (await inventory.step("begin-payment", first, "order-1", "c"))["outcome"] == "done"
    await inventory.step("confirm", first, "order-1")
    refused = await inventory.step("begin-payment", second, "order-2", "c")
    over = {"limit": "tickets_per_customer", "allowed": 3, "used": 2}
    assert (refused["outcome"], refused["over"]) == ("limit-exceeded", over)
    assert (await inventory.step("begin-payment", second, "order-2", "d"))["outcome"] == "done"


async def test_unknown_reservations_have_a_word(inventory: Inventory) -> None:
    for verb in ("begin-payment", "end-payment", "confirm", "release", "reacquire"):
        assert await inventory.step(verb, "0" * 32, "order-1") == {
            "outcome": "unknown", "order_reference": None, "status": None, "reserved_until_ms": None, "over": None
        }  # fmt: skip
    assert await inventory.ask("/reservations/read", {"reservation_ids": ["x"]}) == {"reservations": [None]}
