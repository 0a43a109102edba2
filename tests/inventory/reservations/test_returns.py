"""What was sold comes back: ledger first, Redis after it, once, and only for the order that bought it."""

import asyncio
from typing import Any

import pytest

from services.inventory.redis_keys import Keys
from services.inventory.reservations.repository import read_reservations
from shared.redis.client import REDIS_AWAY
from tests.inventory.conftest import EVENT, Inventory
from tests.inventory.selling import reconciled, sold, sql, status

KEYS = Keys.of(EVENT)


async def return_stock(inventory: Inventory, reservation_id: str, reference: str, **more: Any) -> str:
    step = {"reservation_id": reservation_id, "order_reference": reference}
    answer = await inventory.ask("/reservations/returns", {"steps": [step], "reason": "refunded", **more})
    return str(answer["steps"][0]["outcome"])


async def test_what_was_sold_is_free_again_once_however_often_it_is_told(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=2)
    words = await asyncio.gather(*(return_stock(still, mine, "order-one") for _ in range(5)))
    assert set(words) == {"done"}
    assert await status(still, mine) == "returned"
    assert (await still.left("A"), await still.left("GA1")) == ((15, 0), (20, 0))
    assert await still.broken(at_rest=True) == []
    told = await sql(still, "SELECT id FROM inventory.outbox WHERE body ->> 'type' = 'reservation.returned'")
    assert len(told) == 1
    log = await sql(
        still, "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY 1"
    )
    assert [tuple(row) for row in log] == [("A", "returned", [0, 1], 0, 0), ("GA1", "returned", [], 2, 0)]
    assert await still.state.redis_stock.redis.hget(KEYS.usage, "t:one") is None
    assert (await still.reserve("other", seats=["A-1-1"])).status_code == 201


async def test_redis_follows_once(still: Inventory) -> None:
    """Told again (its answer was lost), it leaves alone what was sold to somebody else meanwhile."""
    mine = await sold(still, "one", ga_section="GA1", ga_quantity=2)
    await sold(still, "two", ga_section="GA1", ga_quantity=2)
    async with still.state.db.connect() as connection:
        record = (await read_reservations(connection, [mine]))[mine]
    assert await return_stock(still, mine, "order-one") == "done"
    epoch = int(await still.state.redis_stock.redis.hget(KEYS.meta, "epoch"))
    await still.state.redis_stock.apply_return(EVENT, record, epoch=epoch, mark=".", places="GA1*2", excess={})
    assert await still.state.redis_stock.redis.hget(KEYS.counts, "GA1:sold") == b"2"
    assert await still.broken() == []


async def test_kept_blocked_it_does_not_go_on_sale(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    assert await return_stock(still, mine, "order-one", keep_blocked=True) == "done"
    assert (await still.left("A"), await still.left("GA1")) == ((14, 0), (18, 0))
    assert (await still.reserve("other", seats=["A-1-1"])).status_code == 409
    assert await still.broken() == []
    await still.state.redis_stock.redis.flushall()
    await still.state.redis_monitor.check()
    assert await still.left("GA1") == (18, 0)
    assert await still.broken() == []


async def test_only_the_order_that_bought_it_gives_it_back(still: Inventory) -> None:
    mine = await sold(still, "one", seats=["A-1-1"])
    held = (await still.reserve("two", seats=["A-1-2"])).json()["reservation_id"]
    assert await return_stock(still, mine, "order-two") == "not-owner"
    assert await return_stock(still, held, "order-two") == "not-owner"
    assert await return_stock(still, "0" * 32, "order-two") == "unknown"
    assert await still.left("A") == (13, 1)


async def test_redis_that_missed_it_is_told_by_reconcile(still: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = await sold(still, "one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)

    async def away(*_: Any, **__: Any) -> None:
        raise REDIS_AWAY[0]

    with monkeypatch.context() as broken:
        broken.setattr(still.state.redis_stock, "apply_return", away)
        assert await return_stock(still, mine, "order-one") == "done"
    assert await still.state.redis_stock.redis.hget(KEYS.counts, "GA1:available") == b"18"
    await reconciled(still)
    assert await still.state.redis_stock.redis.hget(KEYS.counts, "GA1:available") == b"20"
    assert await still.state.redis_stock.redis.hget(KEYS.counts, "A:available") == b"15"
    assert await still.broken() == []


async def test_a_return_decided_before_redis_was_filled_anew_is_not_told_to_it(still: Inventory) -> None:
    """The rebuilt Redis has read it in the database: told again it would count the tickets twice."""
    mine = await sold(still, "one", ga_section="GA1", ga_quantity=2)
    await sold(still, "two", ga_section="GA1", ga_quantity=2)
    real = still.state.redis_stock.apply_return

    async def late(*args: Any, **named: Any) -> None:
        await still.state.redis_stock.redis.flushall()
        await still.state.redis_monitor.check()
        await real(*args, **named)

    still.state.redis_stock.apply_return = late  # type: ignore[method-assign]
    assert await return_stock(still, mine, "order-one") == "done"
    assert await still.left("GA1") == (18, 0)
    assert await still.broken(at_rest=True) == []
