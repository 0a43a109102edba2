"""Expiry of holds: by deadline and by scan. A hold in payment never expires before its order has ended."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.reconcile import invariants
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock.client import HoldGranted
from services.inventory.reservations import expiry_worker, reserve
from services.inventory.reservations.expiry import expire_overdue
from shared.concurrency.background import QUIET_S, Quiet
from shared.contracts.orders import BATCH_MAX
from shared.errors.problems import Unavailable
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from tests.inventory.actions import pause_after, sql, status
from tests.inventory.conftest import EVENT, Inventory
from tests.support.running.suite import problem
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
HOLD_MS = 600_000 + 5_000
LOG = (
    "SELECT section_id, reason, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id, reason"
)


@pytest.mark.usefixtures("loops")
async def test_holds_expire_at_their_deadline_and_those_that_redis_lost_by_a_scan(inventory: Inventory) -> None:
    by_deadline, by_scan = await inventory.hold(), await inventory.hold("other", seats=["B-1-1"])
    await inventory.state.redis_stock.redis.zrem(KEYS.deadlines, by_scan)
    inventory.travel(HOLD_MS - 1_000)
    assert await status(inventory, by_deadline) == "pending_payment", "the grace period has not passed"
    inventory.travel(1_100)  # the scan runs a second behind the deadlines

    async def expired() -> bool:
        return await inventory.counts("A") == (15, 0) and await inventory.counts("GA1") == (20, 0)

    await wait_until(expired)
    inventory.travel(1_000)

    async def is_at_rest() -> bool:
        return await inventory.violations(at_rest=True) == []

    await wait_until(is_at_rest)
    assert [await status(inventory, reservation_id) for reservation_id in (by_deadline, by_scan)] == ["expired"] * 2
    rows = await sql(inventory, LOG)
    assert [tuple(row)[:4] for row in rows] == [
        ("A", "deadline", [0], 0), ("B", "scan", [0], 0), ("GA1", "deadline", [], 2)
    ]  # fmt: skip
    assert all(0 <= row.late_ms < 60_000 for row in rows)


async def test_a_hold_that_nothing_expires_breaks_an_invariant(inventory: Inventory) -> None:
    await inventory.hold()
    inventory.travel(HOLD_MS + invariants.EXPIRY_SLACK_MS - 1_000)
    assert await inventory.violations() == []
    inventory.travel(1_100)
    assert ["past its time" in violation["invariant"] for violation in await inventory.violations()] == [True]


async def test_two_concurrent_scans_expire_each_hold_once(inventory: Inventory) -> None:
    state = inventory.state
    for i in range(5):
        await inventory.hold(f"fan-{i}", seats=[f"A-1-{i + 1}"])
    inventory.travel(HOLD_MS + 1)
    scans = (expire_overdue(state.db, state.redis_stock, EVENT, now_ms=9**15, count_max=3) for _ in range(2))
    assert sum(await asyncio.gather(*scans)) == 5
    assert await inventory.counts("A") == (15, 0)


async def test_the_sweep_checks_the_database_before_it_releases_a_due_hold(inventory: Inventory) -> None:
    """Redis lists two holds as due, but in the database one is extended and the other in payment: the sweep corrects
    Redis. A sweep that trusted Redis would offer their seats again.
    """
    state, redis = inventory.state, inventory.state.redis_stock.redis
    extended, paying = await inventory.hold("one", seats=["A-1-1"]), await inventory.hold("two", seats=["A-1-2"])
    await inventory.step("begin-payment", paying, "order-1")
    await redis.zadd(KEYS.deadlines, {extended: 1, paying: 1})
    now_ms, due = await state.redis_stock.list_due(EVENT, count_max=10)
    assert set(due) == {extended, paying}
    await state.expiry_worker.sweep()
    assert await inventory.counts("A") == (13, 2)
    assert await inventory.violations() == []
    assert await redis.zscore(KEYS.deadlines, extended) > now_ms
    assert await redis.zscore(KEYS.deadlines, paying) is None


@pytest.mark.usefixtures("loops")
async def test_a_hold_that_was_never_written_gets_a_tombstone_and_is_released(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process pauses between Redis and the database. Five seconds later the stock is free, and the write fails.
    Without the tombstone the paused write succeeds, and Redis and the database differ.
    """
    redis_stock = inventory.state.redis_stock
    paused, resume = pause_after(monkeypatch, redis_stock, "hold")
    reservation = asyncio.create_task(inventory.reserve(key="a-key", seats=["A-1-1"]))
    await paused.wait()
    assert await inventory.redis_counts("A") == (14, 1)
    inventory.travel(6_000)

    async def released() -> bool:
        return bool(await redis_stock.redis.hkeys(KEYS.holds) == [EPOCH])

    await wait_until(released)
    resume.set()
    assert problem(await reservation) == (410, "hold-expired")
    assert await inventory.violations(at_rest=True) == []


@pytest.mark.parametrize("key", ["a-key", "another-key", None])
async def test_a_hold_released_only_in_the_database_is_never_returned_to_a_request(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Inventory died after it wrote the tombstone and before it released the hold in Redis. A repeat of the same
    request is answered that the hold has expired, and a new request gets the seat.
    """
    state = inventory.state
    with monkeypatch.context() as dying:
        dying.setattr(reserve, "write_holds", AsyncMock(side_effect=Unavailable))
        assert (await inventory.reserve("ann", key="a-key", seats=["A-1-1"])).status_code == 503
    inventory.travel(6_000)
    with monkeypatch.context() as dying:
        dying.setattr(state.redis_stock, "follow", AsyncMock())
        await state.expiry_worker.sweep()
    assert await inventory.counts("A") == (14, 1), "Redis still counts the hold"
    answer = await inventory.reserve("ann", key=key, seats=["A-1-1"])
    if key == "a-key":
        assert problem(answer) == (410, "hold-expired")
        answer = await inventory.reserve("ann", key="another-key", seats=["A-1-1"])
    assert (answer.status_code, answer.json()["seats"]) == (201, ["A-1-1"])
    assert answer.json()["status"] == "pending_payment"
    assert await inventory.counts("A") == (14, 1)
    assert await inventory.violations() == []


@pytest.mark.parametrize("reachable", [True, False])
async def test_an_overdue_hold_in_payment_stays_while_its_order_lives_or_orders_is_unreachable(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    paying = await inventory.hold()
    await inventory.step("begin-payment", paying, "order-1")
    inventory.travel(3_600_000)
    if not reachable:
        monkeypatch.setattr(inventory.orders, "payments", AsyncMock(side_effect=Unavailable))
    await inventory.state.expiry_worker.check_paying(EVENT, now_ms=9**15)
    assert await status(inventory, paying) == "paying"
    assert expiry_worker.PAYING_MAX <= BATCH_MAX, "one request asks orders about all of them"


async def test_a_refused_hold_resolves_the_due_holds_and_is_tried_again(inventory: Inventory) -> None:
    await inventory.hold("first", ga_section="GA1", ga_quantity=6)
    wrong = {"id": "GA1", "off": {"available": 14, "held": -14}}
    await inventory.state.redis_stock.follow(EVENT, places=[wrong])
    inventory.travel(HOLD_MS + 60)
    answer = await inventory.reserve("second", ga_section="GA1", ga_quantity=6)
    assert answer.status_code == 201


async def test_a_retry_after_a_crash_gets_the_reservation_in_the_database(inventory: Inventory) -> None:
    """A process died between Redis and the database. The fan's next request, with another key, completes the hold."""
    state = inventory.state
    layout = state.catalogue.layout(EVENT)
    lost = build_request(layout, Pass(EVENT, "fan", "jti-fan", 1, 0, 7, 6, 1, 2), ReserveBody(seats=["A-1-1"]), "first")
    assert isinstance((await state.redis_stock.hold(EVENT, [reserve._hold_arguments(lost)]))[0], HoldGranted)
    assert await inventory.hold("fan", key="second", seats=["A-1-1"]) == lost.reservation_id
    assert (await inventory.fan_request("GET", lost.reservation_id)).status_code == 200
    assert await inventory.violations() == []


async def test_a_sweep_is_quiet_until_the_next_deadline(inventory: Inventory) -> None:
    sweep = inventory.state.expiry_worker.sweep
    assert await sweep() == Quiet()
    reservation_id = await inventory.hold()
    assert await sweep() == Quiet()
    inventory.travel(HOLD_MS - 3_000)
    assert 0 < (await sweep()).for_s <= 3
    assert await status(inventory, reservation_id) == "pending_payment"
    inventory.travel(3_100)
    assert (await sweep()).for_s <= 0, "and looks once more"
    assert await sweep() == Quiet()


async def test_a_scan_is_quiet_except_before_a_deadline(inventory: Inventory) -> None:
    scan = inventory.state.expiry_worker.scan
    reservation_id = await inventory.hold()
    await inventory.step("begin-payment", reservation_id, "order-1")  # its deadline is in the database only
    assert await scan() == Quiet()
    until = "SELECT reserved_until_ms + 1000 * grace_s FROM inventory.reservation JOIN inventory.event USING (event_id)"
    [[until_ms]] = await sql(inventory, until)
    inventory.travel(until_ms - now_ms() - expiry_worker.SOON_MS + 1_000)
    assert await scan() is None
    inventory.travel(60_000)
    assert await scan() == Quiet(), "what its order keeps beyond its deadline is asked for in each scan, however rare"
    assert expiry_worker.SOON_MS > 1000 * QUIET_S, "a deadline between two scans would be late"


async def test_a_scan_looks_only_at_events_with_overdue_holds(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inventory.hold()
    reads: list[str] = []

    async def list_due(event_id: str, **_: int) -> tuple[int, tuple[str, ...]]:
        reads.append(event_id)
        return 0, ()

    monkeypatch.setattr(inventory.state.redis_stock, "list_due", list_due)
    await inventory.state.expiry_worker.scan()
    inventory.travel(HOLD_MS - 1_000)
    await inventory.state.expiry_worker.scan()
    assert reads == []
    inventory.travel(1_100)
    await inventory.state.expiry_worker.scan()
    assert reads == [EVENT]
