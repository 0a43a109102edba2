"""How holds end: by deadline, by scan, by hand; and what is being paid is never reaped."""

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.api.reservations import build_request
from services.inventory.api.schemas import ReserveBody
from services.inventory.reconcile import invariants as audit_room
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock.client import HoldGranted, RedisStock
from services.inventory.reservations import expiry, expiry_worker, reserve
from services.inventory.reservations.expiry import expire_overdue
from shared.security.tokens import Pass
from shared.web.problems import Unavailable
from tests.inventory.conftest import EVENT, Inventory
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
HOLD_MS = 600_000 + 5_000


async def made(inventory: Inventory, holder: str = "fan", **body: Any) -> str:
    answer = await inventory.reserve(holder, **(body or {"seats": ["A-1-1"], "ga_section": "GA1", "ga_quantity": 2}))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reservation_id"])


async def status(inventory: Inventory, reservation_id: str) -> str:
    answer = await inventory.ask("/reservations/read", {"reservation_ids": [reservation_id]})
    return str(answer["reservations"][0]["status"])


async def release_log(inventory: Inventory) -> list[tuple[str, str, list[int], int, bool]]:
    query = "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id"
    async with inventory.state.db.connect() as connection:
        rows = await connection.execute(text(query))
        return [(r.section_id, r.reason, r.positions, r.ga_quantity, 0 <= r.late_ms < 60_000) for r in rows]


async def test_a_hold_ends_by_its_deadline_and_its_places_come_back(inventory: Inventory) -> None:
    reservation_id = await made(inventory)
    inventory.travel(HOLD_MS - 1_000)
    assert await status(inventory, reservation_id) == "pending_payment", "the grace is the fan's"
    inventory.travel(1_100)  # the scan stays a second behind the deadlines

    async def over() -> bool:
        return await inventory.left("A") == (15, 0) and await inventory.left("GA1") == (20, 0)

    await wait_until(over)
    assert await status(inventory, reservation_id) == "expired"
    assert await release_log(inventory) == [("A", "deadline", [0], 0, True), ("GA1", "deadline", [], 2, True)]
    assert await inventory.broken(at_rest=True) == []


async def test_a_hold_redis_forgot_ends_by_the_scan(inventory: Inventory) -> None:
    reservation_id = await made(inventory)
    await inventory.state.redis_stock.redis.zrem(KEYS.deadlines, reservation_id)
    inventory.travel(HOLD_MS + 2_000)

    async def over() -> bool:
        return await status(inventory, reservation_id) == "expired"

    await wait_until(over)
    assert {row[1] for row in await release_log(inventory)} == {"scan"}
    await wait_until(lambda: _free(inventory))


async def _free(inventory: Inventory) -> bool:
    return await inventory.broken(at_rest=True) == []


async def test_two_scanners_share_the_work(still: Inventory) -> None:
    state = still.state
    for i in range(5):
        await made(still, f"fan-{i}", seats=[f"A-1-{i + 1}"])
    still.travel(HOLD_MS + 1)
    scans = (expire_overdue(state.db, state.redis_stock, EVENT, now_ms=9**15, count_max=3) for _ in range(2))
    assert sum(await asyncio.gather(*scans)) == 5
    assert await still.left("A") == (15, 0)


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_database_is_asked_before_a_due_hold_is_freed(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Redis thinks a hold is due; the database knows it was extended, or is being paid, and Redis takes that. A
    sweeper that believes Redis offers seats that are somebody's.
    """
    state, redis = still.state, still.state.redis_stock.redis
    extended, paying = await made(still, "one", seats=["A-1-1"]), await made(still, "two", seats=["A-1-2"])
    await still.step("begin-payment", paying, "order-1")
    await redis.zadd(KEYS.deadlines, {extended: 1, paying: 1})
    now_ms, due = await state.redis_stock.list_due(EVENT, count_max=10)
    assert set(due) == {extended, paying}
    if not guarded:
        monkeypatch.setattr(expiry_worker, "resolve_due", _freed_unasked)
    await state.expiry_worker.sweep()
    assert await still.left("A") == ((13, 2) if guarded else (15, 0))
    assert (await still.broken() == []) == guarded
    if guarded:
        assert await redis.zscore(KEYS.deadlines, extended) > now_ms
        assert await redis.zscore(KEYS.deadlines, paying) is None


async def _freed_unasked(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, due: Sequence[str], *, now_ms: int
) -> None:
    await redis_stock.release(event_id, due)


@pytest.mark.parametrize("by", ["deadline", "scan", "nobody"])
async def test_deadlines_and_scan_each_end_a_hold_alone(still: Inventory, by: str) -> None:
    reservation_id = await made(still)
    still.travel(HOLD_MS + expiry_worker.SCAN_DELAY_MS + overdue_ms())
    if by == "deadline":
        await still.state.expiry_worker.sweep()
    elif by == "scan":
        await still.state.redis_stock.redis.zrem(KEYS.deadlines, reservation_id)
        await still.state.expiry_worker.scan()
    ended = by != "nobody"
    assert (await status(still, reservation_id) == "expired") == ended
    assert {row[1] for row in await release_log(still)} == ({by} if ended else set())
    assert (await still.broken(at_rest=True) == []) == ended
    assert ended or any("past its time" in finding["invariant"] for finding in await still.broken())


def overdue_ms() -> int:
    """So much later the audit calls a hold overdue."""
    return audit_room.EXPIRY_SLACK_MS + 100


async def test_a_hold_that_was_never_written_gets_a_tombstone_and_is_freed(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process sleeps between gate and ledger. Five seconds later its places are free, and its write fails."""
    state = inventory.state
    asleep, awake = asyncio.Event(), asyncio.Event()
    real = state.redis_stock.hold

    async def slow(event_id: str, asks: Any) -> Any:
        words = await real(event_id, asks)
        asleep.set()
        await awake.wait()
        return words

    monkeypatch.setattr(state.redis_stock, "hold", slow)
    sleeper = asyncio.create_task(inventory.reserve("sleeper", key="a-key", seats=["A-1-1"]))
    await asleep.wait()
    assert (await inventory.left("A"))[1] == 1
    inventory.travel(6_000)

    async def freed() -> bool:
        return await inventory.left("A") == (15, 0)

    await wait_until(freed)
    awake.set()
    answer = await sleeper
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/hold-expired")
    assert await inventory.broken(at_rest=True) == []


@pytest.mark.parametrize("key", ["a-key", "another-key", None])
async def test_a_hold_that_ended_while_redis_did_not_hear_is_nobodys_answer(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Inventory died after the database's tombstone and before Redis followed. A repeat of the same request hears that
    it came too late, and a new one has the seat.
    """
    state = still.state
    unwritten = AsyncMock(side_effect=Unavailable)
    with monkeypatch.context() as dying:
        dying.setattr(reserve, "write_holds", unwritten)
        assert (await still.reserve("ann", key="a-key", seats=["A-1-1"])).status_code == 503
    still.travel(6_000)
    with monkeypatch.context() as dying:
        dying.setattr(state.redis_stock, "release", AsyncMock())
        await state.expiry_worker.sweep()
    assert await still.left("A") == (14, 1), "Redis has it still"
    answer = await still.reserve("ann", key=key, seats=["A-1-1"])
    if key == "a-key":
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/hold-expired")
        answer = await still.reserve("ann", key="another-key", seats=["A-1-1"])
    assert (answer.status_code, answer.json()["seats"]) == (201, ["A-1-1"])
    assert answer.json()["status"] == "pending_payment"
    assert await still.left("A") == (14, 1)
    assert await still.broken() == []


async def test_without_the_tombstone_a_late_write_takes_a_freed_seat(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard shown to matter: freed without a tombstone, the sleeper's write succeeds and gate and ledger differ."""
    nothing = "SELECT unnest(CAST(:ids AS text[])) WHERE :event_id <> '' AND CAST(:now_ms AS bigint) > 0"
    monkeypatch.setattr(expiry, "INSERT_TOMBSTONES", text(nothing))
    state = inventory.state
    real, written = state.redis_stock.hold, asyncio.Event()

    async def slow(event_id: str, asks: Any) -> Any:
        words = await real(event_id, asks)
        inventory.travel(6_000)
        await wait_until(lambda: _released(inventory))
        written.set()
        return words

    monkeypatch.setattr(state.redis_stock, "hold", slow)
    answer = await inventory.reserve("sleeper", seats=["A-1-1"])
    assert answer.status_code == 201
    assert any("agree" in finding["invariant"] for finding in await inventory.broken())


async def _released(inventory: Inventory) -> bool:
    return bool(await inventory.state.redis_stock.redis.hkeys(KEYS.holds) == [EPOCH])


async def test_a_hold_being_paid_is_never_reaped_until_its_order_is_dead(inventory: Inventory) -> None:
    """Nor when Redis never heard of the payment and calls the hold due."""
    reservation_id = await made(inventory)
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
    assert await inventory.broken(at_rest=True) == []


async def test_silent_orders_release_nothing(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    from shared.web.problems import Unavailable

    async def silent(refs: Any) -> Any:
        raise Unavailable

    reservation_id = await made(inventory)
    await inventory.step("begin-payment", reservation_id, "order-1")
    monkeypatch.setattr(inventory.orders, "payments", silent)
    await inventory.state.expiry_worker.check_paying(EVENT, now_ms=9**15)
    assert await status(inventory, reservation_id) == "paying"
    assert expiry_worker.PAYING_MAX <= 256


@pytest.mark.parametrize("guarded", [True, False])
async def test_due_holds_in_the_way_are_settled_and_the_hold_is_tried_once_more(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    async def unsettled(*_: Any, **__: Any) -> None:
        return None

    if not guarded:
        monkeypatch.setattr(reserve, "resolve_due", unsettled)
    await made(still, "first", ga_section="GA1", ga_quantity=6)
    await still.state.redis_stock.set_positions(EVENT, ["GA1", "count", ".", -14, "GA1", "count", "h", 14])
    still.travel(HOLD_MS + 60)
    answer = await still.reserve("second", ga_section="GA1", ga_quantity=6)
    assert answer.status_code == (201 if guarded else 409)


async def test_who_asks_again_after_a_crash_is_told_the_reservation_that_is_written(still: Inventory) -> None:
    """A process died between gate and ledger; the fan's next request, under another key, completes its hold."""
    state = still.state
    layout = state.catalogue.layout(EVENT)
    lost = build_request(layout, Pass(EVENT, "fan", "jti-fan", 1, 0, 7, 6, 1, 2), ReserveBody(seats=["A-1-1"]), "first")
    assert isinstance((await state.redis_stock.hold(EVENT, [reserve._hold_arguments(lost)]))[0], HoldGranted)
    answer = await still.reserve("fan", key="second", seats=["A-1-1"])
    assert (answer.status_code, answer.json()["reservation_id"]) == (201, lost.reservation_id)
    assert (await still.mine("GET", answer.json()["reservation_id"])).status_code == 200
    assert await still.broken() == []
