"""Returns of a whole sale: in the database first, then in Redis, once, and only by the order that bought it."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.inventory.redis_keys import Keys
from services.inventory.reservations.repository import read_reservations
from shared.redis.client import REDIS_AWAY
from tests.inventory.actions import rebuild, reconcile, sell, sql, status
from tests.inventory.conftest import EVENT, Inventory

KEYS = Keys.of(EVENT)


async def return_stock(inventory: Inventory, reservation_id: str, reference: str, **more: Any) -> str:
    step = {"reservation_id": reservation_id, "order_reference": reference}
    answer = await inventory.post_internal("/reservations/returns", {"steps": [step], "reason": "refunded", **more})
    return str(answer["steps"][0]["outcome"])


async def test_repeated_returns_release_a_sale_once(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    outcomes = await asyncio.gather(*(return_stock(manual, bought, "order-one") for _ in range(5)))
    assert set(outcomes) == {"done"}
    assert await status(manual, bought) == "returned"
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((15, 0), (20, 0))
    assert await manual.violations(at_rest=True) == []
    events = await sql(manual, "SELECT id FROM inventory.outbox WHERE body ->> 'type' = 'reservation.returned'")
    assert len(events) == 1
    log = await sql(
        manual, "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY 1"
    )
    assert [tuple(row) for row in log] == [("A", "returned", [0, 1], 0, 0), ("GA1", "returned", [], 2, 0)]
    assert await manual.state.redis_stock.redis.hget(KEYS.usage, "t:one") is None
    assert (await manual.reserve("other", seats=["A-1-1"])).status_code == 201


async def test_redis_applies_a_repeated_return_once(manual: Inventory) -> None:
    """A return repeated after a lost answer does not change what was sold to somebody else meanwhile."""
    bought = await sell(manual, "one", ga_section="GA1", ga_quantity=2)
    await sell(manual, "two", ga_section="GA1", ga_quantity=2)
    async with manual.state.db.connect() as connection:
        row = (await read_reservations(connection, [bought]))[bought]
    assert await return_stock(manual, bought, "order-one") == "done"
    epoch = int(await manual.state.redis_stock.redis.hget(KEYS.meta, "epoch"))
    await manual.state.redis_stock.apply_return(EVENT, row, epoch=epoch, mark=".", places="GA1*2", excess={})
    assert await manual.state.redis_stock.redis.hget(KEYS.counts, "GA1:sold") == b"2"
    assert await manual.violations() == []


async def test_stock_returned_as_blocked_does_not_go_on_sale(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    assert await return_stock(manual, bought, "order-one", keep_blocked=True) == "done"
    assert (await manual.counts("A"), await manual.counts("GA1")) == ((14, 0), (18, 0))
    assert (await manual.reserve("other", seats=["A-1-1"])).status_code == 409
    assert await manual.violations() == []
    await rebuild(manual)
    assert await manual.counts("GA1") == (18, 0)
    assert await manual.violations() == []


async def test_only_the_order_of_a_sale_can_return_it(manual: Inventory) -> None:
    bought = await sell(manual, "one", seats=["A-1-1"])
    held = await manual.hold("two", seats=["A-1-2"])
    assert await return_stock(manual, bought, "order-two") == "not-owner"
    assert await return_stock(manual, held, "order-two") == "not-owner"
    assert await return_stock(manual, "0" * 32, "order-two") == "unknown"
    assert await manual.counts("A") == (13, 1)


async def test_reconciliation_applies_a_return_that_redis_missed(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bought = await sell(manual, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    with monkeypatch.context() as broken:
        broken.setattr(manual.state.redis_stock, "apply_return", AsyncMock(side_effect=REDIS_AWAY[0]))
        assert await return_stock(manual, bought, "order-one") == "done"
    assert await manual.state.redis_stock.redis.hget(KEYS.counts, "GA1:available") == b"18"
    await reconcile(manual)
    assert await manual.state.redis_stock.redis.hget(KEYS.counts, "GA1:available") == b"20"
    assert await manual.state.redis_stock.redis.hget(KEYS.counts, "A:available") == b"15"
    assert await manual.violations() == []


async def test_a_return_from_before_a_rebuild_is_not_applied_to_the_rebuilt_stock(manual: Inventory) -> None:
    """The rebuild has read the return from the database: applied again, it would count the tickets twice."""
    bought = await sell(manual, "one", ga_section="GA1", ga_quantity=2)
    await sell(manual, "two", ga_section="GA1", ga_quantity=2)
    apply_return = manual.state.redis_stock.apply_return

    async def apply_after_rebuild(*args: Any, **named: Any) -> None:
        await rebuild(manual)
        await apply_return(*args, **named)

    manual.state.redis_stock.apply_return = apply_after_rebuild  # type: ignore[method-assign]
    assert await return_stock(manual, bought, "order-one") == "done"
    assert await manual.counts("GA1") == (18, 0)
    assert await manual.violations(at_rest=True) == []
