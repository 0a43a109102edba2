"""Every reason for a release: it is logged with its delay, ends no hold in payment, and leaves nothing held."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.reservations.expiry import cancel_holds, expire_overdue, resolve_due
from tests.inventory.actions import end_sessions, sql, status, usage
from tests.inventory.conftest import EVENT, Inventory

KEYS = Keys.of(EVENT)
HOLD_MS = 600_000 + 5_000
LATE_MS = 1_500
LOG = "SELECT reason, section_id, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id"
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
    rows = [tuple(row) for row in await sql(inventory, LOG)]
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
    assert await sql(inventory, LOG) == []
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
