"""Clocks are set forward and back while holds live, all together and each alone: none ends early, none stays for ever.

What fans were told is kept beside, and compared with what the database and Redis do, by the true time.
"""

import logging
import random

import pytest

from services.inventory.redis_keys import Keys
from services.inventory.reservations.expiry_worker import SCAN_DELAY_MS
from services.inventory.stock.snapshot import read_stock
from shared.runtime.clock import now_ms
from shared.runtime.metrics import CLOCK_SKEW
from tests.inventory.clocks import HOUR_MS, Steps
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.inventory.conftest import EVENT, Inventory
from tests.inventory.selling import status
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
GRACE_MS, HOLD_MS = 5_000, 600_000
CLOCKS = ("redis", "postgres", "process")


async def made(inventory: Inventory, holder: str, seat: str) -> tuple[str, int]:
    answer = await inventory.reserve(holder, seats=[seat], ga_section="GA1", ga_quantity=1)
    assert answer.status_code == 201, answer.text
    reservation_id = str(answer.json()["reservation_id"])
    return reservation_id, (await record(inventory, reservation_id))[1]


async def record(inventory: Inventory, reservation_id: str) -> tuple[str, int]:
    found = (await inventory.ask("/reservations/read", {"reservation_ids": [reservation_id]}))["reservations"][0]
    return str(found["status"]), int(found["reserved_until_ms"])


async def sweep(inventory: Inventory) -> None:
    """Every way in which holds end, and the look at the clocks that a second brings."""
    state = inventory.state
    for look_first in (False, True):
        if look_first:
            await state.redis_stock.clocks.refresh(state.autocommit_db, state.redis_stock.redis)
        await state.expiry_worker.sweep()
        await state.expiry_worker.scan()


async def test_clocks_set_back_together_free_nothing_and_the_time_does_not_go_back(still: Inventory) -> None:
    first, until_ms = await made(still, "first", "A-1-1")
    still.travel(-30_000)
    second, second_until_ms = await made(still, "second", "A-1-2")
    assert second_until_ms >= until_ms
    still.travel(30_000 - HOUR_MS)
    third, third_until_ms = await made(still, "third", "A-1-3")
    assert third_until_ms < until_ms, "an hour that was wrong is not sat out"
    await sweep(still)
    still.travel(HOUR_MS + third_until_ms - until_ms)
    await sweep(still)
    assert {(await record(still, r))[0] for r in (first, second)} == {"pending_payment"}
    still.travel(HOUR_MS + HOLD_MS + GRACE_MS + 2 * SCAN_DELAY_MS)
    await sweep(still)
    assert {(await record(still, r))[0] for r in (first, second, third)} == {"expired"}
    assert await still.broken(at_rest=True) == []


async def test_a_clock_set_back_while_paying_and_extending_loses_nothing(still: Inventory) -> None:
    """Deadlines that came from the database's clock are never earlier than what the fan was promised."""
    extended, extended_until_ms = await made(still, "one", "A-1-1")
    paying, paying_until_ms = await made(still, "two", "A-1-2")
    still.travel(-1_800_000)
    assert (await still.mine("POST", extended, "one", more="/extend")).status_code == 200
    assert (await still.step("begin-payment", paying, "order-1"))["outcome"] == "done"
    await sweep(still)
    assert (await record(still, extended))[1] >= extended_until_ms
    assert (await record(still, paying))[1] >= paying_until_ms
    still.travel(1_800_000)
    await sweep(still)
    assert (await record(still, extended))[0] == "pending_payment"
    assert (await still.step("confirm", paying, "order-1"))["outcome"] == "done"
    assert await still.broken() == []


@pytest.mark.parametrize("seed", range(3))
async def test_wherever_the_clocks_jump_together_no_hold_ends_early_and_none_leaks(still: Inventory, seed: int) -> None:
    drawn = random.Random(seed)
    promised: dict[str, int] = {}
    for turn in range(12):
        still.travel(drawn.choice([-900_000, -30_000, -5_000, 4_000, 45_000, 400_000, 700_000]))
        reservation_id, until_ms = await made(still, f"fan-{turn}", f"A-{turn // 5 + 1}-{turn % 5 + 1}")
        promised[reservation_id] = until_ms
        await sweep(still)
        for known, known_until_ms in list(promised.items()):
            if (await record(still, known))[0] == "expired":
                early_ms = known_until_ms + GRACE_MS - now_ms() - still.state.redis_stock.clock_offset_ms
                assert early_ms < 0, f"turn {turn}: ended {early_ms} ms early"
                del promised[known]
    still.state.redis_stock.clock_offset_ms = 10_000_000
    await sweep(still)
    assert {(await record(still, known))[0] for known in promised} <= {"expired"}
    assert await still.broken(at_rest=True) == []


@pytest.mark.parametrize("by_ms", [55_000, -55_000])
@pytest.mark.parametrize("which", CLOCKS)
async def test_one_clock_that_steps_within_a_minute_ends_no_hold_that_a_fan_was_told_to_have(
    steps: Steps, still: Inventory, which: str, by_ms: int
) -> None:
    """Told before the step and after it, and extended: until the true time is past nobody else is told that they have
    the seat, and whoever has it may still pay.
    """
    told = {"A-1-1": await made(still, "A-1-1", "A-1-1")}
    await steps.set(which, by_ms)
    for seat in ("A-1-2", "A-1-3"):
        told[seat] = await made(still, seat, seat)
    longer = told["A-1-3"][0]
    assert (await still.mine("POST", longer, "A-1-3", more="/extend")).status_code == 200
    told["A-1-3"] = longer, (await record(still, longer))[1]
    for end_ms in sorted(until_ms for _, until_ms in told.values()):
        still.travel(end_ms - await _true_ms(still) - 1_000)
        await sweep(still)
        for seat, (reservation_id, until_ms) in told.items():
            if until_ms >= end_ms:
                assert await status(still, reservation_id) == "pending_payment"
                assert (await still.reserve("thief", seats=[seat])).status_code == 409
    last, _ = max(told.values(), key=lambda hold: hold[1])
    assert (await still.step("begin-payment", last, "order-1"))["outcome"] == "done"
    await steps.set(which, 0)
    still.travel(3 * HOLD_MS)
    await sweep(still)
    ended = {await status(still, reservation_id) for reservation_id, _ in told.values() if reservation_id != last}
    assert ended == {"expired"}
    assert await still.broken() == []


async def _true_ms(inventory: Inventory) -> int:
    """By a clock that nobody set: Redis' own, moved with everybody's."""
    seconds, micros = await inventory.state.redis_stock.redis.time()
    return seconds * 1000 + micros // 1000 + inventory.state.redis_stock.clock_offset_ms


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 61_500])
@pytest.mark.parametrize("which", CLOCKS)
async def test_one_clock_that_is_more_than_a_minute_off_pauses_the_sale_and_it_goes_on_by_itself(
    steps: Steps, selling: Inventory, caplog: pytest.LogCaptureFixture, which: str, by_ms: int
) -> None:
    held, until_ms = await made(selling, "holder", "A-1-1")
    await steps.set(which, by_ms)

    with caplog.at_level(logging.WARNING, logger="onsale.clocks"):
        if which != "redis":  # whose clock is compared by the script that promises
            await wait_until(selling.state.redis_stock.clocks.apart)
        refused = await selling.reserve("next", seats=["A-1-2"])
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/clocks-apart"), refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert f"{abs(by_ms) // 1000 // 10}" in refused.json()["detail"], "which clock, and how far"
        await wait_until(lambda: any(r.message == "clock.apart" for r in caplog.records))
    ready = await selling.fans.get("/readyz")
    assert ready.status_code == 200, "another answer for everybody would say less"
    assert "Nothing is sold" in ready.json()["warnings"][0]
    assert any("clocks" in finding["invariant"] for finding in await selling.broken())
    assert not (await selling.state.availability.frame(selling.state.catalogue.layout(EVENT))).ready, (
        "nobody is called meanwhile"
    )
    assert await status(selling, held) == "pending_payment"
    assert (await selling.step("begin-payment", held, "order-1"))["outcome"] == "done", "what is held may be paid"
    await steps.set(which, 0)

    async def selling_again() -> bool:
        return (await selling.reserve("next", seats=["A-1-2"])).status_code == 201

    await wait_until(selling_again)
    assert (await selling.step("confirm", held, "order-1"))["outcome"] == "done"
    assert (await record(selling, held))[1] < until_ms + HOUR_MS, "a clock that is off promises nobody an hour"
    await wait_until(lambda: _clean(selling))
    assert "warnings" not in (await selling.fans.get("/readyz")).json()


async def _clean(inventory: Inventory) -> bool:
    return await inventory.broken() == []


@pytest.fixture
async def selling(steps: Steps, inventory: Inventory) -> Inventory:
    """Running, with its loops."""
    return inventory


async def test_a_pass_given_back_stays_dead_for_redis_that_was_filled_while_the_database_was_ahead(
    steps: Steps, still: Inventory
) -> None:
    session = {"jti": "1-0-7-1", "holder": "gone", "expires_at_ms": now_ms() + HOLD_MS}
    await still.ask("/sessions/end", {"event_id": EVENT, "sessions": [session]})
    await steps.set("postgres", 2 * HOUR_MS)
    stock = await read_stock(still.state.db, EVENT)
    assert [jti for jti, _ in stock.revoked_passes] == ["1-0-7-1"]


async def test_a_step_is_seen_and_told(steps: Steps, still: Inventory, caplog: pytest.LogCaptureFixture) -> None:
    state = still.state
    for which, by_ms, shown in (("redis", 14_000, "Redis"), ("postgres", -20_000, "PostgreSQL")):
        await steps.set(which, by_ms)
        with caplog.at_level(logging.WARNING, logger="onsale.clocks"):
            await state.redis_stock.clocks.refresh(state.autocommit_db, state.redis_stock.redis)
        assert caplog.records[-1].message == "clock.stepped"
        assert abs(CLOCK_SKEW.labels("inventory", shown)._value.get() * 1000 - by_ms) < 1_000
    assert abs(state.redis_stock.clocks.slowest_ms() - now_ms() + 20_000) < 1_000
