"""Reconciliation of an event with many buyers: what it keeps in memory, and holders whose tickets differ."""

import tracemalloc
from collections import Counter
from typing import Any

import pytest

from services.inventory.reconcile import redis_diff
from services.inventory.reconcile.drift import Drift
from services.inventory.reconcile.redis_diff import compare_stock
from services.inventory.redis_keys import Keys
from tests.inventory.actions import put_large_event, rebuild, reconcile, sql, usage
from tests.inventory.conftest import EVENT, Inventory

KEYS = Keys.of(EVENT)
MORE = "generate_series(CAST(:bought AS int) + 1, CAST(:more AS int)) AS n"
BUY = (
    "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
    "order_reference, reserved_until_ms, fingerprint, confirmed_at) SELECT :event_id, md5('r' || n), md5('h' || n), 1, "
    f"'EUR', 'confirmed', 'order-' || n, 0, 'stock.body', now() FROM {MORE}"
)
BUY_GA = (
    "INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor) "
    f"SELECT :event_id, md5('r' || n), 'GA1', 1, 1 FROM {MORE}"
)
LOWER = (
    "UPDATE inventory.section SET seats_remaining = seats_remaining - (SELECT count(*) FROM "
    f"{MORE}) WHERE event_id = :event_id AND section_id = 'GA1'"
)


async def buy_up_to(inventory: Inventory, more: int, *, bought: int = 0) -> None:
    """As many fans have bought a ticket each as `more`, of whom `bought` had one before."""
    await sql(inventory, BUY, BUY_GA, LOWER, bought=bought, more=more)
    await rebuild(inventory)


async def peak_of_a_pass(inventory: Inventory) -> int:
    """The most bytes that Python had at a time during a pass that finds nothing, beyond those before it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert (await reconcile(inventory, times=1)).differences == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


async def test_the_memory_of_a_pass_does_not_grow_with_the_buyers(manual: Inventory) -> None:
    await put_large_event(manual, capacity=100_000)
    await buy_up_to(manual, 5_000)
    await peak_of_a_pass(manual)  # statements are prepared now
    few = await peak_of_a_pass(manual)
    await buy_up_to(manual, 50_000, bought=5_000)
    many = await peak_of_a_pass(manual)
    assert many < 1.5 * few, (few, many)


async def test_holders_whose_tickets_differ_are_found_by_name(manual: Inventory) -> None:
    """Among thousands, of whom some are in the same groups."""
    await put_large_event(manual, capacity=100_000)
    await buy_up_to(manual, 5_000)
    [(holder,)] = await sql(manual, "SELECT min(holder) FROM inventory.reservation WHERE event_id = :event_id")
    redis, layout = manual.state.redis_stock.redis, manual.state.catalogue.layout(EVENT)
    await redis.hset(KEYS.usage, mapping={f"t:{holder}": 3, "t:nobody": 4})
    found = await compare_stock(manual.state.db, redis, layout)
    assert set(found.drift) == {Drift("usage", holder, None, 3, 1), Drift("usage", "nobody", None, 4, 0)}
    assert (await reconcile(manual)).corrected == 2
    assert [(await usage(manual, name))[0] for name in (holder, "nobody")] == [1, 0]
    assert await manual.violations() == []


@pytest.mark.parametrize("change", ["begins", "ends"])
async def test_a_hold_that_changes_while_tickets_are_counted_is_no_drift(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It is in the holds and not in the tickets that were counted, or the other way round."""
    fans = [f"{n}-fan" for n in range(3)]
    held = {fan: await manual.hold(fan, ga_section="GA1", ga_quantity=1) for fan in fans if change == "ends"}
    count = redis_diff._usage

    async def meanwhile(*args: Any) -> Counter[str]:
        counted, fan = await count(*args), fans.pop()
        if held:
            assert (await manual.fan_request("DELETE", held[fan], fan)).is_success
        else:
            await manual.hold(fan, ga_section="GA1", ga_quantity=1)
        return counted

    monkeypatch.setattr(redis_diff, "_usage", meanwhile)
    found = await compare_stock(manual.state.db, manual.state.redis_stock.redis, manual.state.catalogue.layout(EVENT))
    assert found.drift == []
