"""Reconciliation of an event with many buyers: what it keeps in memory, and holders whose tickets differ."""

import tracemalloc
from collections import Counter
from typing import Any

import pytest

from services.inventory.reconcile import redis_diff
from services.inventory.reconcile.redis_diff import StockComparison, compare_stock
from services.inventory.redis_keys import Keys
from services.inventory.store.drift import Drift
from tests.inventory.actions import put_large_event, rebuild, reconcile, sql, usage
from tests.inventory.conftest import EVENT, Inventory

KEYS = Keys.of(EVENT)
MORE = "generate_series(CAST(:bought AS int) + 1, CAST(:more AS int)) AS n"
HOLDER = "translate(encode(substr(sha256(CAST('h' || n AS bytea)), 1, 24), 'base64'), '+/', '-_')"  # as of a real fan
BUY = (
    "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
    "order_reference, reserved_until_ms, fingerprint, confirmed_at) SELECT :event_id, md5('r' || n), "
    f"{HOLDER}, 1, 'EUR', 'confirmed', 'order-' || n, 0, 'stock.body', now() FROM {MORE}"
)
BUY_GA = (
    "INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor) "
    f"SELECT :event_id, md5('r' || n), 'GA1', 1, 1 FROM {MORE}"
)
REVOKE = (
    "INSERT INTO inventory.revoked_pass (event_id, jti, expires_at_ms) SELECT :event_id, md5('p' || n), "
    f"(extract(epoch FROM now()) * 1000)::bigint + 600000 FROM {MORE}"
)
LOWER = (
    "UPDATE inventory.section SET seats_remaining = seats_remaining - (SELECT count(*) FROM "
    f"{MORE}) WHERE event_id = :event_id AND section_id = 'GA1'"
)


async def buy_up_to(inventory: Inventory, more: int, *, bought: int = 0) -> None:
    """As many fans have bought a ticket each as `more`, of whom `bought` had one before; their passes are revoked."""
    await sql(inventory, BUY, BUY_GA, REVOKE, LOWER, bought=bought, more=more)
    await rebuild(inventory)


async def peak_of_a_comparison(inventory: Inventory, *, differing: int) -> int:
    """The most bytes that Python had at a time, beyond those before: the least of three, as one may prepare its
    statements.
    """
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            assert len((await compared(inventory)).drift) == differing
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        peaks.append(peak - before)
    return min(peaks)


async def compared(inventory: Inventory) -> StockComparison:
    """Both stocks as they are now."""
    return await compare_stock(
        inventory.state.db, inventory.state.redis_stock.redis, inventory.state.catalogue.layout(EVENT)
    )


@pytest.mark.proof
@pytest.mark.parametrize("differing", [1, 0])
async def test_the_memory_of_a_comparison_does_not_grow_with_the_buyers(inventory: Inventory, differing: int) -> None:
    """Also if somebody's tickets differ, as they do for a moment nearly always while it sells."""
    peaks = []
    await put_large_event(inventory, capacity=100_000)
    for bought, more in ((0, 10_000), (10_000, 60_000)):
        await buy_up_to(inventory, more, bought=bought)
        if differing:
            await inventory.state.redis_stock.redis.hset(KEYS.usage, "t:nobody", "1")
        peaks.append(await peak_of_a_comparison(inventory, differing=differing))
    few, many = peaks
    assert many < 1.3 * few, (few, many)


@pytest.mark.parametrize("buyers", [200, pytest.param(5_000, marks=pytest.mark.proof)])
async def test_holders_whose_tickets_differ_are_found_by_name(inventory: Inventory, buyers: int) -> None:
    """Among thousands some are in the same groups."""
    await put_large_event(inventory, capacity=100_000)
    await buy_up_to(inventory, buyers)
    [(holder,)] = await sql(inventory, "SELECT min(holder) FROM inventory.reservation WHERE event_id = :event_id")
    await inventory.state.redis_stock.redis.hset(KEYS.usage, mapping={f"t:{holder}": 3, "t:nobody": 4})
    assert set((await compared(inventory)).drift) == {
        Drift("usage", holder, None, 3, 1),
        Drift("usage", "nobody", None, 4, 0),
    }
    assert (await reconcile(inventory)).corrected == 2
    assert [(await usage(inventory, name))[0] for name in (holder, "nobody")] == [1, 0]
    assert await inventory.violations() == []


@pytest.mark.parametrize("change", ["begins", "ends"])
async def test_a_hold_that_changes_while_tickets_are_counted_is_no_drift(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It is in the holds and not in the tickets that were counted, or the other way round."""
    fans = [f"{n}-fan" for n in range(3)]
    held = {fan: await inventory.hold(fan, ga_section="GA1", ga_quantity=1) for fan in fans if change == "ends"}
    count = redis_diff._usage

    async def meanwhile(*args: Any) -> Counter[str]:
        counted, fan = await count(*args), fans.pop()
        if held:
            assert (await inventory.fan_request("DELETE", held[fan], fan)).is_success
        else:
            await inventory.hold(fan, ga_section="GA1", ga_quantity=1)
        return counted

    monkeypatch.setattr(redis_diff, "_usage", meanwhile)
    assert (await compared(inventory)).drift == []
