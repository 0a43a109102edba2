"""Every way a hold ends is logged with how and how late, none takes it from somebody who is paying, nothing leaks."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.reservations.expiry import cancel_holds, expire_overdue, resolve_due
from tests.inventory.conftest import EVENT, Inventory
from tests.inventory.selling import sql, status

KEYS = Keys.of(EVENT)
HOLD_MS = 600_000 + 5_000
LATE_MS = 1_500
LOG = "SELECT reason, section_id, positions, ga_quantity, late_ms FROM inventory.release_log ORDER BY section_id"
Way = Callable[[Inventory, str], Awaitable[object]]


async def held(inventory: Inventory, holder: str = "fan", **body: Any) -> str:
    made = await inventory.reserve(holder, **(body or {"seats": ["A-1-1"], "ga_section": "GA1", "ga_quantity": 2}))
    assert made.status_code == 201, made.text
    return str(made.json()["reservation_id"])


async def deadline(inventory: Inventory, _: str) -> None:
    inventory.travel(HOLD_MS + LATE_MS)
    await inventory.state.expiry_worker.sweep()


async def by_scan(inventory: Inventory, _: str) -> None:
    inventory.travel(HOLD_MS + LATE_MS)
    now_ms, _due = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
    await expire_overdue(inventory.state.db, inventory.state.redis_stock, EVENT, now_ms=now_ms)


async def by_the_fan(inventory: Inventory, reservation_id: str) -> None:
    assert (await inventory.mine("DELETE", reservation_id)).status_code in (200, 204)


async def by_an_operator(inventory: Inventory, reservation_id: str) -> None:
    await inventory.admin("POST", f"/reservations/{reservation_id}/release")


async def all_at_once(inventory: Inventory, _: str) -> None:
    assert await inventory.admin("POST", f"/events/{EVENT}/release-all") == {"released": 1}


async def by_leaving(inventory: Inventory, _: str) -> None:
    session = {"jti": "jti-fan", "holder": "fan", "expires_at_ms": 9**14}
    await inventory.ask("/sessions/end", {"event_id": EVENT, "leaving": True, "sessions": [session]})


async def by_its_order(inventory: Inventory, reservation_id: str) -> None:
    await inventory.step("begin-payment", reservation_id, "order-1")
    await inventory.step("release", reservation_id, "order-1")


async def by_orders_word(inventory: Inventory, reservation_id: str) -> None:
    """Its payment began, the order never came to be: orders says so when it is asked, past the deadline."""
    await inventory.step("begin-payment", reservation_id, "order-1")
    inventory.orders.states["order-1"] = "unknown"
    inventory.travel(HOLD_MS + LATE_MS)
    now_ms, _due = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
    await inventory.state.expiry_worker.check_paying(EVENT, now_ms=now_ms)


WAYS: list[tuple[Way, str, bool]] = [
    (deadline, "deadline", True), (by_scan, "scan", True), (by_the_fan, "cancelled", False),
    (by_an_operator, "operator", False), (all_at_once, "release-all", False), (by_leaving, "leaving", False),
    (by_its_order, "order", False), (by_orders_word, "orders-gone", True),
]  # fmt: skip


@pytest.mark.parametrize(("way", "how", "late"), WAYS, ids=lambda way: getattr(way, "__name__", None))
async def test_every_end_is_logged_with_how_and_how_late(still: Inventory, way: Way, how: str, late: bool) -> None:
    reservation_id = await held(still)
    await way(still, reservation_id)
    rows = [tuple(row) for row in await sql(still, LOG)]
    assert [row[:4] for row in rows] == [(how, "A", [0], 0), (how, "GA1", [], 2)]
    assert all((LATE_MS <= row[4] < LATE_MS + 5_000) if late else row[4] == 0 for row in rows)
    assert await still.broken(at_rest=True) == []
    assert await status(still, reservation_id) in ("expired", "cancelled")


@pytest.mark.parametrize("way", [deadline, by_scan, by_the_fan, by_an_operator, by_leaving])
async def test_no_way_takes_a_hold_from_somebody_who_is_paying(still: Inventory, way: Way) -> None:
    """Nobody knows yet what became of the payment: whoever asks, and however late, the hold stays."""
    paying = await held(still)
    await still.step("begin-payment", paying, "order-1")
    if way is by_the_fan:
        assert (await still.mine("DELETE", paying)).status_code == 409
    else:
        await way(still, paying)
    assert await status(still, paying) == "paying"
    assert await sql(still, LOG) == []
    assert (await still.step("confirm", paying, "order-1"))["outcome"] == "done"


async def test_the_database_itself_keeps_what_is_being_paid(still: Inventory) -> None:
    """Whoever asked before the payment began, and comes late: the doors do not look again, the statements do."""
    state, paying = still.state, await held(still)
    await still.step("begin-payment", paying, "order-1")
    assert (
        await cancel_holds(state.db, state.redis_stock, EVENT, [paying], reason="operator", now_ms=9**14, actor="stale")
        == []
    )
    await resolve_due(state.db, state.redis_stock, EVENT, [paying], now_ms=9**14)
    assert await status(still, paying) == "paying"
    assert await still.left("A") == (14, 1)


async def test_an_operator_is_told_that_it_is_being_paid(still: Inventory) -> None:
    paying = await held(still)
    await still.step("begin-payment", paying, "order-1")
    refused = await still.admin("POST", f"/reservations/{paying}/release")
    assert (refused["status"], refused["type"]) == (409, "/problems/payment-in-progress")


async def test_release_all_does_not_reach_those_who_are_paying(still: Inventory) -> None:
    paying = await held(still, "payer", seats=["A-1-1"])
    await still.step("begin-payment", paying, "order-1")
    others = [await held(still, f"fan-{n}", seats=[f"A-2-{n}"]) for n in (1, 2, 3)]
    assert await still.admin("POST", f"/events/{EVENT}/release-all") == {"released": 3}
    assert await still.admin("POST", f"/events/{EVENT}/release-all") == {"released": 0}
    assert await status(still, paying) == "paying"
    assert {await status(still, reservation_id) for reservation_id in others} == {"cancelled"}
    assert await still.left("A") == (14, 1)


async def test_an_extension_is_given_once(still: Inventory) -> None:
    mine = await held(still)
    before = (await still.mine("GET", mine)).json()["reserved_until"]
    answers = await asyncio.gather(*(still.mine("POST", mine, more="/extend") for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert (await still.mine("GET", mine)).json()["reserved_until"] > before


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_fans_and_operators_did_at_rest_nothing_is_held(still: Inventory, seed: int) -> None:
    """Thirty fans do as they like at the same time; then nobody pays any more, time passes, and nothing is left."""
    dice = random.Random(seed)
    ways: list[Way] = [by_an_operator, by_its_order]

    async def fan(n: int) -> None:
        for turn in range(3):
            wish: dict[str, Any] = (
                {"seats": [f"A-{dice.randint(1, 3)}-{dice.randint(1, 5)}"]} if dice.random() < 0.5 else {}
            )
            made = await still.reserve(f"fan-{n}", **wish, ga_section="GA1", ga_quantity=dice.randint(1, 2))
            if made.status_code != 201:
                continue
            mine, reference = made.json()["reservation_id"], f"order-{n}-{turn}"
            match dice.randrange(6):
                case 0:
                    await still.mine("DELETE", mine, f"fan-{n}")
                case 1:
                    await still.step("begin-payment", mine, reference)
                    still.orders.states[reference] = dice.choice(["cancelled", "unknown"])
                case 2:
                    await still.step("begin-payment", mine, reference)
                    await still.step("end-payment", mine, reference)
                case 3:
                    await still.mine("POST", mine, f"fan-{n}", more="/extend")
                case 4:
                    await dice.choice(ways)(still, mine)

    await asyncio.gather(*(fan(n) for n in range(30)))
    still.travel(2 * HOLD_MS)
    await still.state.expiry_worker.sweep()
    await still.state.expiry_worker.scan()
    assert await still.broken(at_rest=True) == []
    live = "SELECT count(*) FROM inventory.reservation WHERE status IN ('pending_payment', 'paying')"
    assert (await sql(still, live))[0][0] == 0
    redis = still.state.redis_stock.redis
    assert [await redis.hkeys(KEYS.holds), await redis.hkeys(KEYS.usage)] == [[EPOCH], [EPOCH]]
    assert await redis.zrange(KEYS.deadlines, 0, -1) == [EPOCH]
    assert int(await redis.hget(KEYS.meta, "holding")) == 0
