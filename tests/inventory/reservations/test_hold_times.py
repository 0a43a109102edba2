"""When a payment first began is kept, and the two lengths of a hold that an event may compare."""

from typing import Any

import pytest

from shared.contracts.event_file import SalesPart
from shared.rules.rollout import outside, within
from tests.inventory.actions import record, sql
from tests.inventory.conftest import EVENT, Inventory, event_file


async def test_the_first_begin_payment_of_a_reservation_counts(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(seats=["A-1-1"])
    begun_at = []
    for order in ("order-1", "order-2"):
        await inventory.step("begin-payment", reservation_id, order)
        await inventory.step("end-payment", reservation_id, order)
        begun_at += await sql(inventory, "SELECT payment_begun_at FROM inventory.reservation")
    assert begun_at[0] == begun_at[1] != (None,)


async def test_each_arm_has_its_own_hold_time_also_after_an_extension(inventory: Inventory) -> None:
    await inventory.put(event_file(hold_ttl_b_s=60, hold_ttl_b_percent=50))
    layout = inventory.state.catalogue.layout(EVENT)
    long, short = fan_of(layout, "a"), fan_of(layout, "b")
    inventory.state.expiry_worker.sweep = None  # type: ignore[method-assign, assignment]
    remaining_s = {}
    for row, holder in enumerate((long, short)):
        reservation_id = await inventory.hold(holder, seats=[f"A-{row + 1}-1"])
        inventory.travel(30_000)
        await inventory.fan_request("POST", reservation_id, holder, more="/extend")
        until_ms = (await record(inventory, reservation_id))["reserved_until_ms"]
        now_ms, _ = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
        remaining_s[holder] = round((until_ms - now_ms) / 1000)
    assert remaining_s == {long: pytest.approx(600, abs=3), short: pytest.approx(60, abs=3)}


def fan_of(layout: Any, arm: str) -> str:
    return next(name for i in range(100) if layout.variant_for(name := f"fan-{i}").name == arm)


def test_the_second_arm_needs_a_hold_time() -> None:
    with pytest.raises(ValueError, match="needs hold_ttl_b_s"):
        SalesPart(hold_ttl_b_percent=50)


def test_arms_are_independent_of_the_rollout_of_the_waiting_room() -> None:
    fans = [f"fan-{i}" for i in range(4000)]
    in_b = {fan for fan in fans if within("hold_ttl", "e", fan, 50)}
    outside_rollout = {fan for fan in fans if outside("e", fan, 50)}
    assert 900 < len(in_b & outside_rollout) < 1100
    assert in_b <= {fan for fan in fans if within("hold_ttl", "e", fan, 60)}
    assert not any(within("hold_ttl", "e", fan, 0) for fan in fans)
