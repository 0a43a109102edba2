"""Expiry of holds: by deadline and by scan. A hold in payment never expires before its order has ended."""

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.api.reservations import build_request
from services.inventory.api.schemas import ReserveBody
from services.inventory.reconcile import invariants
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock.client import HoldGranted, RedisStock
from services.inventory.reservations import expiry, expiry_worker, reserve
from services.inventory.reservations.expiry import expire_overdue
from shared.security.tokens import Pass
from shared.web.problems import Unavailable
from tests.inventory.actions import sql, status
from tests.inventory.conftest import EVENT, Inventory
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
HOLD_MS = 600_000 + 5_000


async def release_log(inventory: Inventory) -> list[tuple[str, str, list[int], int, bool]]:
    """Section, reason, seats and GA tickets of every release, and whether its delay is plausible."""
    query = "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id"
    rows = await sql(inventory, query)
    return [(r.section_id, r.reason, r.positions, r.ga_quantity, 0 <= r.late_ms < 60_000) for r in rows]


async def test_a_hold_expires_at_its_deadline_and_releases_its_stock(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    inventory.travel(HOLD_MS - 1_000)
    assert await status(inventory, reservation_id) == "pending_payment", "the grace period has not passed"
    inventory.travel(1_100)  # the scan runs a second behind the deadlines

    async def expired() -> bool:
        return await inventory.counts("A") == (15, 0) and await inventory.counts("GA1") == (20, 0)

    await wait_until(expired)
    assert await status(inventory, reservation_id) == "expired"
    assert await release_log(inventory) == [("A", "deadline", [0], 0, True), ("GA1", "deadline", [], 2, True)]
    assert await inventory.violations(at_rest=True) == []


async def test_the_scan_expires_a_hold_that_redis_lost(inventory: Inventory) -> None:
    reservation_id = await inventory.hold()
    await inventory.state.redis_stock.redis.zrem(KEYS.deadlines, reservation_id)
    inventory.travel(HOLD_MS + 2_000)

    async def expired() -> bool:
        return await status(inventory, reservation_id) == "expired"

    await wait_until(expired)
    assert {row[1] for row in await release_log(inventory)} == {"scan"}
    await wait_until(lambda: _nothing_is_held(inventory))


async def _nothing_is_held(inventory: Inventory) -> bool:
    return await inventory.violations(at_rest=True) == []


async def test_two_concurrent_scans_expire_each_hold_once(manual: Inventory) -> None:
    state = manual.state
    for i in range(5):
        await manual.hold(f"fan-{i}", seats=[f"A-1-{i + 1}"])
    manual.travel(HOLD_MS + 1)
    scans = (expire_overdue(state.db, state.redis_stock, EVENT, now_ms=9**15, count_max=3) for _ in range(2))
    assert sum(await asyncio.gather(*scans)) == 5
    assert await manual.counts("A") == (15, 0)


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_sweep_checks_the_database_before_it_releases_a_due_hold(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Redis lists two holds as due, but in the database one is extended and the other in payment: the sweep corrects
    Redis. A sweep that trusted Redis would offer their seats again.
    """
    state, redis = manual.state, manual.state.redis_stock.redis
    extended, paying = await manual.hold("one", seats=["A-1-1"]), await manual.hold("two", seats=["A-1-2"])
    await manual.step("begin-payment", paying, "order-1")
    await redis.zadd(KEYS.deadlines, {extended: 1, paying: 1})
    now_ms, due = await state.redis_stock.list_due(EVENT, count_max=10)
    assert set(due) == {extended, paying}
    if not guarded:
        monkeypatch.setattr(expiry_worker, "resolve_due", _release_unchecked)
    await state.expiry_worker.sweep()
    assert await manual.counts("A") == ((13, 2) if guarded else (15, 0))
    assert (await manual.violations() == []) == guarded
    if guarded:
        assert await redis.zscore(KEYS.deadlines, extended) > now_ms
        assert await redis.zscore(KEYS.deadlines, paying) is None


async def _release_unchecked(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, due: Sequence[str], *, now_ms: int
) -> None:
    await redis_stock.release(event_id, due)


@pytest.mark.parametrize("reason", ["deadline", "scan", None])
async def test_the_sweep_and_the_scan_each_expire_a_hold_alone(manual: Inventory, reason: str | None) -> None:
    reservation_id = await manual.hold()
    manual.travel(HOLD_MS + expiry_worker.SCAN_DELAY_MS + invariants.EXPIRY_SLACK_MS + 100)
    if reason == "deadline":
        await manual.state.expiry_worker.sweep()
    elif reason == "scan":
        await manual.state.redis_stock.redis.zrem(KEYS.deadlines, reservation_id)
        await manual.state.expiry_worker.scan()
    ended = reason is not None
    assert (await status(manual, reservation_id) == "expired") == ended
    assert {row[1] for row in await release_log(manual)} == ({reason} if ended else set())
    assert (await manual.violations(at_rest=True) == []) == ended
    assert ended or any("past its time" in violation["invariant"] for violation in await manual.violations())


async def test_a_hold_that_was_never_written_gets_a_tombstone_and_is_released(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process pauses between Redis and the database. Five seconds later the stock is free, and the write fails."""
    state = inventory.state
    paused, resume = asyncio.Event(), asyncio.Event()
    hold = state.redis_stock.hold

    async def pausing_hold(event_id: str, requests: Any) -> Any:
        outcomes = await hold(event_id, requests)
        paused.set()
        await resume.wait()
        return outcomes

    monkeypatch.setattr(state.redis_stock, "hold", pausing_hold)
    reservation = asyncio.create_task(inventory.reserve(key="a-key", seats=["A-1-1"]))
    await paused.wait()
    assert (await inventory.counts("A"))[1] == 1
    inventory.travel(6_000)

    async def released() -> bool:
        return await inventory.counts("A") == (15, 0)

    await wait_until(released)
    resume.set()
    answer = await reservation
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/hold-expired")
    assert await inventory.violations(at_rest=True) == []


@pytest.mark.parametrize("key", ["a-key", "another-key", None])
async def test_a_hold_released_only_in_the_database_is_never_returned_to_a_request(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Inventory died after it wrote the tombstone and before it released the hold in Redis. A repeat of the same
    request is answered that the hold has expired, and a new request gets the seat.
    """
    state = manual.state
    with monkeypatch.context() as dying:
        dying.setattr(reserve, "write_holds", AsyncMock(side_effect=Unavailable))
        assert (await manual.reserve("ann", key="a-key", seats=["A-1-1"])).status_code == 503
    manual.travel(6_000)
    with monkeypatch.context() as dying:
        dying.setattr(state.redis_stock, "release", AsyncMock())
        await state.expiry_worker.sweep()
    assert await manual.counts("A") == (14, 1), "Redis still counts the hold"
    answer = await manual.reserve("ann", key=key, seats=["A-1-1"])
    if key == "a-key":
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/hold-expired")
        answer = await manual.reserve("ann", key="another-key", seats=["A-1-1"])
    assert (answer.status_code, answer.json()["seats"]) == (201, ["A-1-1"])
    assert answer.json()["status"] == "pending_payment"
    assert await manual.counts("A") == (14, 1)
    assert await manual.violations() == []


async def test_without_the_tombstone_a_late_write_takes_a_released_seat(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proof that the tombstone is needed: without it the paused write succeeds, and Redis and the database differ."""
    no_insert = "SELECT unnest(CAST(:ids AS text[])) WHERE :event_id <> '' AND CAST(:now_ms AS bigint) > 0"
    monkeypatch.setattr(expiry, "INSERT_TOMBSTONES", text(no_insert))
    state = inventory.state
    hold = state.redis_stock.hold

    async def pausing_hold(event_id: str, requests: Any) -> Any:
        outcomes = await hold(event_id, requests)
        inventory.travel(6_000)
        await wait_until(lambda: _released(inventory))
        return outcomes

    monkeypatch.setattr(state.redis_stock, "hold", pausing_hold)
    answer = await inventory.reserve(seats=["A-1-1"])
    assert answer.status_code == 201
    assert any("agree" in violation["invariant"] for violation in await inventory.violations())


async def _released(inventory: Inventory) -> bool:
    return bool(await inventory.state.redis_stock.redis.hkeys(KEYS.holds) == [EPOCH])


async def test_a_hold_in_payment_is_released_only_after_its_order_has_ended(inventory: Inventory) -> None:
    """Even if Redis missed the payment and lists the hold as due."""
    reservation_id = await inventory.hold()
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.state.redis_stock.redis.zadd(KEYS.deadlines, {reservation_id: 1})
    inventory.travel(3_600_000)
    state = inventory.state
    now_ms, _ = await state.redis_stock.list_due(EVENT, count_max=1)
    await state.expiry_worker.sweep()
    await state.expiry_worker.scan()
    await state.expiry_worker.check_paying(EVENT, now_ms=now_ms)
    assert await status(inventory, reservation_id) == "paying"
    inventory.orders.states["order-1"] = "unknown"
    await state.expiry_worker.check_paying(EVENT, now_ms=now_ms)
    assert await status(inventory, reservation_id) == "expired"
    assert {row[1] for row in await release_log(inventory)} == {"orders-gone"}
    assert await inventory.violations(at_rest=True) == []


async def test_an_unreachable_orders_service_releases_nothing(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation_id = await inventory.hold()
    await inventory.step("begin-payment", reservation_id, "order-1")
    monkeypatch.setattr(inventory.orders, "payments", AsyncMock(side_effect=Unavailable))
    await inventory.state.expiry_worker.check_paying(EVENT, now_ms=9**15)
    assert await status(inventory, reservation_id) == "paying"
    assert expiry_worker.PAYING_MAX <= 256


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_refused_hold_resolves_the_due_holds_and_is_tried_again(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(reserve, "resolve_due", AsyncMock())
    await manual.hold("first", ga_section="GA1", ga_quantity=6)
    await manual.state.redis_stock.set_positions(EVENT, ["GA1", "count", ".", -14, "GA1", "count", "h", 14])
    manual.travel(HOLD_MS + 60)
    answer = await manual.reserve("second", ga_section="GA1", ga_quantity=6)
    assert answer.status_code == (201 if guarded else 409)


async def test_a_retry_after_a_crash_gets_the_reservation_in_the_database(manual: Inventory) -> None:
    """A process died between Redis and the database. The fan's next request, with another key, completes the hold."""
    state = manual.state
    layout = state.catalogue.layout(EVENT)
    lost = build_request(layout, Pass(EVENT, "fan", "jti-fan", 1, 0, 7, 6, 1, 2), ReserveBody(seats=["A-1-1"]), "first")
    assert isinstance((await state.redis_stock.hold(EVENT, [reserve._hold_arguments(lost)]))[0], HoldGranted)
    answer = await manual.reserve("fan", key="second", seats=["A-1-1"])
    assert (answer.status_code, answer.json()["reservation_id"]) == (201, lost.reservation_id)
    assert (await manual.fan_request("GET", answer.json()["reservation_id"])).status_code == 200
    assert await manual.violations() == []
