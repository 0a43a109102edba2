"""Rebuild of the Redis stock: a Redis that lost its data sells nothing until it is rebuilt, without an operator."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

import pytest

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import rebuild
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from tests.inventory.actions import block, buy, end_sessions, is_clean, pause_after, reconcile, sql
from tests.inventory.conftest import EVENT, Inventory
from tests.inventory.redis_stock.script_calls import hold_arguments
from tests.support.running.suite import problem
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)


@pytest.mark.usefixtures("loops")
async def test_the_invariants_hold_after_redis_is_flushed_during_a_sale(inventory: Inventory) -> None:
    state = inventory.state
    answers: list[int] = []

    async def fan(i: int) -> None:
        for seat in ("A-1-1", f"A-{i % 3 + 1}-{i % 5 + 1}", f"B-{i % 2 + 1}-{i % 4 + 1}"):
            answer = await inventory.reserve(f"fan-{i}", seats=[seat], ga_section="GA1", ga_quantity=1)
            answers.append(answer.status_code)

    paid = await inventory.hold("payer", seats=["A-3-5"], ga_section="GA1", ga_quantity=2)
    await inventory.step("begin-payment", paid, "order-1")
    selling = asyncio.gather(*(fan(i) for i in range(25)))
    await wait_until(lambda: len(answers) > 5)
    await state.redis_stock.redis.flushall()
    await selling
    started = time.monotonic()
    await inventory.until_ready()
    assert time.monotonic() - started < 1.0
    assert set(answers) <= {201, 409, 503}
    assert await inventory.outcome("confirm", paid, "order-1") == "done"
    await wait_until(lambda: is_clean(inventory))


async def test_a_rebuild_wakes_the_loop_that_ends_its_holds(inventory: Inventory, woken: list[str]) -> None:
    await inventory.hold("fan", seats=["A-1-1"])
    await inventory.state.redis_stock.redis.flushall()
    woken.clear()
    await inventory.state.redis_monitor.check()
    assert woken == ["inventory"]


async def test_a_closed_redis_stock_answers_503_with_retry_after(inventory: Inventory) -> None:
    await inventory.state.redis_stock.redis.hset(KEYS.meta, mapping={"ready": "0", "rebuild_renewed_at": str(9**15)})
    answer = await inventory.reserve(seats=["A-1-1"])
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    sections = await inventory.fans.get(f"/events/{EVENT}/sections")
    assert [s["available_seats"] for s in sections.json()["sections"]] == [15, 8, 20], "the database answers meanwhile"


@pytest.mark.usefixtures("loops")
async def test_redis_restored_from_an_older_snapshot_is_rebuilt(inventory: Inventory) -> None:
    """Another Redis process with an older snapshot: every key exists, but held seats are free again."""
    redis = inventory.state.redis_stock.redis
    keys = await redis.keys("inventory:*")
    older = {key: value for key in keys if (value := await redis.dump(key)) is not None}
    await inventory.hold(seats=["A-1-1"])
    for key, value in older.items():
        await redis.restore(key, 0, value, replace=True)
    await redis.hset(KEYS.meta, "redis_instance_id", "the process before")

    async def rebuilt() -> bool:
        return await inventory.counts("A") == (14, 1)

    await wait_until(rebuilt, timeout_s=2)
    await inventory.until_ready()
    assert problem(await inventory.reserve("other", seats=["A-1-1"])) == (409, "seats-taken")
    assert await inventory.violations() == []


async def test_concurrent_rebuilds_end_in_one_open_redis_stock(inventory: Inventory) -> None:
    state = inventory.state
    await inventory.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    monitors = [RedisStockMonitor(state.db, state.redis_stock, state.catalogue) for _ in range(3)]
    await state.redis_stock.redis.flushall()
    await asyncio.gather(*(monitor.check() for monitor in monitors))
    await inventory.until_ready()
    assert (await inventory.counts("A"), await inventory.counts("GA1")) == ((14, 1), (18, 2))
    assert await inventory.violations() == []


async def test_a_slow_rebuild_is_left_to_the_process_that_began_it(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large stock takes longer to read than the rebuild lease lasts, and another process checks repeatedly."""
    state = inventory.state
    monkeypatch.setattr(rebuild, "RENEW_INTERVAL_S", 0.05)
    _, checked = pause_after(monkeypatch, rebuild, "read_stock")

    async def renewed_at_ms() -> int:
        return int(await state.redis_stock.redis.hget(KEYS.meta, "rebuild_renewed_at") or 0)

    await state.redis_stock.redis.flushall()
    before = state.catalogue.layout(EVENT).redis_epoch
    rebuilding = asyncio.create_task(state.redis_monitor.check())
    other = RedisStockMonitor(state.db, state.redis_stock, state.catalogue)
    await wait_until(renewed_at_ms)
    for _ in range(3):
        at_ms = await renewed_at_ms()
        inventory.travel(rebuild.REBUILD_LEASE_MS - 1_000)

        async def is_renewed(since_ms: int = at_ms) -> bool:
            return await renewed_at_ms() >= since_ms + rebuild.REBUILD_LEASE_MS - 1_000

        await wait_until(is_renewed)
        await other.check()
    checked.set()
    await rebuilding
    await inventory.until_ready()
    assert (await sql(inventory, "SELECT redis_epoch FROM inventory.event"))[0].redis_epoch == before + 1


async def test_the_lease_of_a_rebuild_that_failed_ends_although_its_cancellation_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class LosesOneCancellation:
        """As Python 3.11's `wait_for`, when its wait ends at that moment."""

        clock_offset_ms, renewals = 0, 0

        async def call(self, *_: object, **__: object) -> None:
            self.renewals += 1
            with suppress(*[asyncio.CancelledError] if self.renewals == 1 else []):
                await asyncio.Event().wait()

    monkeypatch.setattr(rebuild, "RENEW_INTERVAL_S", 0.001)
    redis_stock: Any = LosesOneCancellation()
    async with rebuild._renewing(redis_stock, EVENT, 1):
        await wait_until(lambda: redis_stock.renewals)
    assert "inventory.renew" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.usefixtures("loops")
async def test_a_rebuilt_redis_stock_equals_the_lost_one(inventory: Inventory) -> None:
    redis = inventory.state.redis_stock.redis
    held = await inventory.hold("one", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    paying = await inventory.hold("two", seats=["B-1-1"])
    sold = await inventory.hold("three", seats=["B-2-4"])
    await inventory.step("begin-payment", paying, "order-1")
    await buy(inventory, sold, "order-2")
    await end_sessions(inventory, "nobody")
    assert (await block(inventory, "A-2-1", ga=3)).is_success
    allotment = {"name": "Band", "kind": "house", "seats": ["A-2-2"], "ga": [{"section_id": "GA1", "quantity": 5}]}
    assert (await inventory.operate("PUT", "/allotments/band", **allotment)).is_success
    before = await stored(redis)
    assert (before["maps"][0], before["counts"]["GA1:blocked"]) == (b"h....|xx...|.....", 8)
    await redis.flushall()
    await inventory.until_ready()
    assert await stored(redis) == before
    assert [reservation_id for reservation_id, _ in before["deadlines"]] == [held.encode()]


async def stored(redis: Any) -> dict[str, Any]:
    """Everything that Redis stores of the stock."""
    hashes = [await redis.hgetall(key) for key in (KEYS.counts, KEYS.holds)]
    usage = await redis.hgetall(KEYS.usage)
    usage.pop(EPOCH)
    counts, holds = ({k.decode(): json.loads(v) for k, v in h.items() if k != EPOCH} for h in hashes)
    return {
        "holds": holds, "counts": counts, "usage": usage,
        "deadlines": await redis.zrangebyscore(KEYS.deadlines, "-inf", "(inf", withscores=True),
        "revoked": await redis.zrangebyscore(KEYS.revoked, "-inf", "(inf"),
        "holding": await redis.hget(KEYS.meta, "holding"),
        "maps": [await redis.get(KEYS.map + section) for section in "AB"],
    }  # fmt: skip


async def test_reconciliation_corrects_only_lasting_drift(inventory: Inventory) -> None:
    """A difference in one pass may be a change in progress; after five seconds it is drift."""
    state = inventory.state
    redis, reconciler = state.redis_stock.redis, state.reconciler
    await asyncio.gather(*(inventory.reserve(f"fan-{i}", seats=[f"A-1-{i + 1}"]) for i in range(3)))
    reconciler._last_pass.clear()
    await redis.setrange(KEYS.map + "A", 0, "s")  # a held seat marked as sold
    await redis.hincrby(KEYS.counts, "GA1:available", 5)
    await redis.hdel(KEYS.holds, next(key for key in await redis.hkeys(KEYS.holds) if key != EPOCH))
    await redis.hset(KEYS.usage, "t:ghost", "4")
    first = await reconcile(inventory, times=1)
    assert first.differences >= 4
    assert first.corrected == 0
    assert (await reconcile(inventory, times=1, after_s=4)).corrected == 0
    assert (await reconcile(inventory, times=1, after_s=2)).corrected >= 4
    assert (await reconcile(inventory, times=1)).differences == 0
    assert await inventory.violations() == []


async def test_reconciliation_corrects_a_section_and_its_unknown_hold_once(inventory: Inventory) -> None:
    """Redis has a hold that the database does not have: releasing it and correcting the counts is one correction."""
    await inventory.state.redis_stock.hold(EVENT, [hold_arguments("A:0;GA1*2", holder="ghost")])
    assert await inventory.redis_counts("GA1") == (18, 2)
    await reconcile(inventory)
    assert await inventory.redis_counts("GA1") == (20, 0)
    assert (await reconcile(inventory, times=1)).differences == 0
