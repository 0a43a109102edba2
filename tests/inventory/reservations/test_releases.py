"""Ends of holds, by deadline and by scan: a hold in payment never expires before its order has ended; every reason for
a release is logged with its delay and leaves nothing held.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.reconcile import invariants
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock.client import HoldGranted
from services.inventory.reservations import expiry_worker, reserve
from services.inventory.reservations.expiry import cancel_holds, expire_overdue, resolve_due
from shared.concurrency.background import QUIET_S, Quiet
from shared.contracts.orders import BATCH_MAX
from shared.errors.problems import Unavailable
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from tests.inventory.actions import end_sessions, pause_after, sql, status, usage
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


LATE_MS = 1_500
RELEASE_LOG = (
    "SELECT reason, section_id, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id"
)
Release = Callable[[Inventory, str], Awaitable[object]]


async def by_deadline(inventory: Inventory, _: str) -> None:
    inventory.travel(HOLD_MS + LATE_MS)
    await inventory.state.expiry_worker.sweep()


async def by_scan(inventory: Inventory, _: str) -> None:
    inventory.travel(HOLD_MS + LATE_MS)
    now_ms, _due = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
    await expire_overdue(inventory.state.db, inventory.state.redis_stock, EVENT, now_ms=now_ms)


async def by_the_fan(inventory: Inventory, reservation_id: str) -> None:
    await inventory.fan_request("DELETE", reservation_id)


async def by_an_operator(inventory: Inventory, reservation_id: str) -> None:
    await inventory.admin("POST", f"/reservations/{reservation_id}/release", reason="a fan asked")


async def by_release_all(inventory: Inventory, _: str) -> None:
    await inventory.admin("POST", f"/events/{EVENT}/release-all", reason="the wrong prices")


async def by_leaving(inventory: Inventory, _: str) -> None:
    await end_sessions(inventory, "fan", leaving=True)


async def by_order(inventory: Inventory, reservation_id: str) -> None:
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")


async def by_missing_order(inventory: Inventory, reservation_id: str) -> None:
    """Its payment began, but orders never created the order and answers so after the deadline."""
    await inventory.step("begin-payment", reservation_id, "order-1")
    inventory.orders.states["order-1"] = "unknown"
    inventory.travel(HOLD_MS + LATE_MS)
    now_ms, _due = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
    await inventory.state.expiry_worker.check_paying(EVENT, now_ms=now_ms)


RELEASES: list[tuple[Release, str, bool]] = [
    (by_deadline, "deadline", True), (by_scan, "scan", True), (by_the_fan, "cancelled", False),
    (by_an_operator, "operator", False), (by_release_all, "release-all", False), (by_leaving, "leaving", False),
    (by_order, "order", False), (by_missing_order, "orders-gone", True),
]  # fmt: skip


async def test_a_hold_and_its_end_wake_the_relay_of_their_process(inventory: Inventory, woken: list[str]) -> None:
    held = await inventory.hold()
    assert woken == ["inventory"]
    await inventory.fan_request("DELETE", held)
    assert woken == ["inventory"] * 2


@pytest.mark.parametrize(("release", "reason", "late"), RELEASES, ids=lambda value: getattr(value, "__name__", None))
async def test_every_release_is_logged_with_its_reason_and_delay(
    inventory: Inventory, release: Release, reason: str, late: bool
) -> None:
    reservation_id = await inventory.hold()
    await release(inventory, reservation_id)
    rows = [tuple(row) for row in await sql(inventory, RELEASE_LOG)]
    assert [row[:4] for row in rows] == [(reason, "A", [0], 0), (reason, "GA1", [], 2)]
    assert all((LATE_MS <= row[4] < LATE_MS + 5_000) if late else row[4] == 0 for row in rows)
    assert await inventory.violations(at_rest=True) == []
    assert await status(inventory, reservation_id) in ("expired", "cancelled")
    assert await usage(inventory) == (0, 0), "it no longer counts for the limits of its holder"


@pytest.mark.parametrize("release", [by_deadline, by_scan, by_the_fan, by_an_operator, by_release_all, by_leaving])
async def test_no_release_ends_a_hold_in_payment(inventory: Inventory, release: Release) -> None:
    """The outcome of the payment is unknown, so the hold stays, however late it is."""
    paying = await inventory.hold()
    await inventory.step("begin-payment", paying, "order-1")
    await release(inventory, paying)
    assert await status(inventory, paying) == "paying"
    assert await sql(inventory, RELEASE_LOG) == []
    assert await inventory.outcome("confirm", paying, "order-1") == "done"


async def test_the_statements_themselves_keep_a_hold_in_payment(inventory: Inventory) -> None:
    """A release that was requested before the payment began does not check again; its SQL statement does."""
    db, redis_stock, paying = inventory.state.db, inventory.state.redis_stock, await inventory.hold()
    await inventory.step("begin-payment", paying, "order-1")
    assert not await cancel_holds(db, redis_stock, EVENT, [paying], reason="operator", now_ms=9**14, actor="stale")
    await resolve_due(db, redis_stock, EVENT, [paying], now_ms=9**14)
    assert await status(inventory, paying) == "paying"
    assert await inventory.counts("A") == (14, 1)


async def test_release_all_releases_every_hold_that_is_not_in_payment(inventory: Inventory) -> None:
    paying = await inventory.hold("payer", seats=["A-1-1"])
    await inventory.step("begin-payment", paying, "order-1")
    others = [await inventory.hold(f"fan-{n}", seats=[f"A-2-{n}"]) for n in (1, 2, 3)]
    for released in (3, 0):
        assert await inventory.admin("POST", f"/events/{EVENT}/release-all", reason="the wrong prices") == {
            "released": released
        }
    assert {await status(inventory, reservation_id) for reservation_id in others} == {"cancelled"}
    assert await inventory.counts("A") == (14, 1)


async def test_why_an_operator_released_holds_is_in_the_audit_log(inventory: Inventory) -> None:
    one, *_ = [await inventory.hold(f"fan-{n}", seats=[f"A-2-{n}"]) for n in (1, 2, 3)]
    assert (await inventory.admin("POST", f"/events/{EVENT}/release-all"))["type"].endswith("invalid-request")
    for _ in range(2):  # the second time there is nothing to release, and no entry
        await by_an_operator(inventory, one)
    for _ in range(2):
        await by_release_all(inventory, "")
    changes = (await inventory.admin("GET", f"/events/{EVENT}/changes"))["changes"]
    assert [(one["action"], one["reason"], one["after"]) for one in changes if one["action"].startswith("release")] == [
        ("release-all", "the wrong prices", {"released": 2}),
        ("release", "a fan asked", {"reservation_id": one}),
    ]


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.proof) for n in range(2, 10))])
async def test_nothing_stays_held_after_random_actions_of_fans_and_operators(inventory: Inventory, seed: int) -> None:
    """Thirty fans act at random and concurrently. Then nobody pays any more, time passes, and nothing is held."""
    dice = random.Random(seed)
    releases: list[Release] = [by_an_operator, by_order]

    async def fan(n: int) -> None:
        for attempt in range(3):
            body: dict[str, Any] = {"ga_section": "GA1", "ga_quantity": dice.randint(1, 2)}
            if dice.random() < 0.5:
                body["seats"] = [f"A-{dice.randint(1, 3)}-{dice.randint(1, 5)}"]
            answer = await inventory.reserve(f"fan-{n}", **body)
            if answer.status_code != 201:
                continue
            reservation_id, reference = answer.json()["reservation_id"], f"order-{n}-{attempt}"
            match dice.randrange(6):
                case 0:
                    await inventory.fan_request("DELETE", reservation_id, f"fan-{n}")
                case 1:
                    await inventory.step("begin-payment", reservation_id, reference)
                    inventory.orders.states[reference] = dice.choice(["cancelled", "unknown"])
                case 2:
                    await inventory.step("begin-payment", reservation_id, reference)
                    await inventory.step("end-payment", reservation_id, reference)
                case 3:
                    await inventory.fan_request("POST", reservation_id, f"fan-{n}", more="/extend")
                case 4:
                    await dice.choice(releases)(inventory, reservation_id)

    await asyncio.gather(*(fan(n) for n in range(30)))
    inventory.travel(2 * HOLD_MS)
    await inventory.state.expiry_worker.sweep()
    await inventory.state.expiry_worker.scan()
    assert await inventory.violations(at_rest=True) == []
    assert (
        await sql(inventory, "SELECT 1 FROM inventory.reservation WHERE status IN ('pending_payment', 'paying')") == []
    )
    redis = inventory.state.redis_stock.redis
    assert [await redis.hkeys(KEYS.holds), await redis.hkeys(KEYS.usage)] == [[EPOCH], [EPOCH]]
    assert await redis.zrange(KEYS.deadlines, 0, -1) == [EPOCH]
    assert int(await redis.hget(KEYS.meta, "holding")) == 0


async def test_a_release_frees_no_seat_of_another_holder(inventory: Inventory) -> None:
    """Whatever went wrong before: a seat belongs to the reservation that its row names."""
    released, other = [
        await inventory.hold(name, seats=[seat]) for name, seat in (("fan", "A-1-1"), ("other", "A-1-2"))
    ]
    await sql(
        inventory,
        "UPDATE inventory.seat SET reservation_id = :other WHERE reservation_id = :released",
        released=released, other=other,
    )  # fmt: skip
    await by_the_fan(inventory, released)
    of_other = "SELECT status FROM inventory.seat WHERE reservation_id = :other"
    assert [row.status for row in await sql(inventory, of_other, other=other)] == ["held", "held"]
