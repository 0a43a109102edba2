"""Clock steps during live holds, of all clocks together and of each alone: no hold ends early, and none stays for ever.

The deadlines that fans were promised are compared with the state of the database and of Redis at the true time.
"""

import logging
import random

import pytest

from services.inventory.reservations.expiry_worker import SCAN_DELAY_MS
from services.inventory.store.snapshot import read_stock
from shared.process import clock_offsets
from shared.runtime.clock import now_ms
from shared.runtime.metrics import CLOCK_SKEW
from tests.inventory.actions import record, status
from tests.inventory.clocks import HOUR_MS, Steps, each_clock
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.inventory.conftest import EVENT, Inventory
from tests.support.running.suite import problem
from tests.support.wait import wait_until

GRACE_MS, HOLD_MS = 5_000, 600_000


async def hold(inventory: Inventory, holder: str, seat: str) -> tuple[str, int]:
    """The reservation and the deadline that the fan was promised."""
    reservation_id = await inventory.hold(holder, seats=[seat], ga_section="GA1", ga_quantity=1)
    return reservation_id, await until_ms_of(inventory, reservation_id)


async def until_ms_of(inventory: Inventory, reservation_id: str) -> int:
    return int((await record(inventory, reservation_id))["reserved_until_ms"])


async def read_clocks(inventory: Inventory) -> None:
    state = inventory.state
    await clock_offsets.read_clocks(state.redis_stock.clocks, state.autocommit_db, state.redis_stock.redis)


async def sweep(inventory: Inventory) -> None:
    """Everything that expires holds, before and after the clocks are compared."""
    for compared in (False, True):
        if compared:
            await read_clocks(inventory)
        await inventory.state.expiry_worker.sweep()
        await inventory.state.expiry_worker.scan()


async def test_clocks_set_back_together_release_no_hold(inventory: Inventory) -> None:
    first, until_ms = await hold(inventory, "first", "A-1-1")
    inventory.travel(-30_000)
    second, second_until_ms = await hold(inventory, "second", "A-1-2")
    assert second_until_ms >= until_ms
    inventory.travel(30_000 - HOUR_MS)
    third, third_until_ms = await hold(inventory, "third", "A-1-3")
    assert third_until_ms < until_ms, "a clock that was an hour ahead does not add an hour"
    await sweep(inventory)
    inventory.travel(HOUR_MS + third_until_ms - until_ms)
    await sweep(inventory)
    assert {await status(inventory, r) for r in (first, second)} == {"pending_payment"}
    inventory.travel(HOUR_MS + HOLD_MS + GRACE_MS + 2 * SCAN_DELAY_MS)
    await sweep(inventory)
    assert {await status(inventory, r) for r in (first, second, third)} == {"expired"}
    assert await inventory.violations(at_rest=True) == []


async def test_a_clock_set_back_shortens_no_extension_and_no_payment(inventory: Inventory) -> None:
    """Deadlines set by the clock of the database are never earlier than what the fan was promised."""
    extended, extended_until_ms = await hold(inventory, "one", "A-1-1")
    paying, paying_until_ms = await hold(inventory, "two", "A-1-2")
    inventory.travel(-1_800_000)
    assert (await inventory.fan_request("POST", extended, "one", more="/extend")).status_code == 200
    assert await inventory.outcome("begin-payment", paying, "order-1") == "done"
    await sweep(inventory)
    assert await until_ms_of(inventory, extended) >= extended_until_ms
    assert await until_ms_of(inventory, paying) >= paying_until_ms
    inventory.travel(1_800_000)
    await sweep(inventory)
    assert await status(inventory, extended) == "pending_payment"
    assert await inventory.outcome("confirm", paying, "order-1") == "done"
    assert await inventory.violations() == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.proof) for n in range(1, 10))])
async def test_random_steps_of_all_clocks_end_no_hold_early_and_leak_none(inventory: Inventory, seed: int) -> None:
    dice = random.Random(seed)
    promised: dict[str, int] = {}
    for n in range(12):
        inventory.travel(dice.choice([-900_000, -30_000, -5_000, 4_000, 45_000, 400_000, 700_000]))
        reservation_id, until_ms = await hold(inventory, f"fan-{n}", f"A-{n // 5 + 1}-{n % 5 + 1}")
        promised[reservation_id] = until_ms
        await sweep(inventory)
        for known, known_until_ms in list(promised.items()):
            if await status(inventory, known) == "expired":
                early_ms = known_until_ms + GRACE_MS - now_ms() - inventory.state.redis_stock.clock_offset_ms
                assert early_ms < 0, f"n {n}: ended {early_ms} ms early"
                del promised[known]
    inventory.state.redis_stock.clock_offset_ms = 10_000_000
    await sweep(inventory)
    assert {await status(inventory, known) for known in promised} <= {"expired"}
    assert await inventory.violations(at_rest=True) == []


@pytest.mark.parametrize(("which", "by_ms"), each_clock(55_000, -55_000))
async def test_one_clock_less_than_a_minute_off_ends_no_hold_early(
    steps: Steps, inventory: Inventory, which: str, by_ms: int
) -> None:
    """Holds from before and after the step, one of them extended: until the true deadline nobody else gets the seats,
    and the last holder can still pay.
    """
    promised = {"A-1-1": await hold(inventory, "A-1-1", "A-1-1")}
    await steps.set(which, by_ms)
    for seat in ("A-1-2", "A-1-3"):
        promised[seat] = await hold(inventory, seat, seat)
    longer = promised["A-1-3"][0]
    assert (await inventory.fan_request("POST", longer, "A-1-3", more="/extend")).status_code == 200
    promised["A-1-3"] = longer, await until_ms_of(inventory, longer)
    for end_ms in sorted(until_ms for _, until_ms in promised.values()):
        inventory.travel(end_ms - await _true_ms(inventory) - 1_000)
        await sweep(inventory)
        for seat, (reservation_id, until_ms) in promised.items():
            if until_ms >= end_ms:
                assert await status(inventory, reservation_id) == "pending_payment"
                assert (await inventory.reserve("thief", seats=[seat])).status_code == 409
    last, _ = max(promised.values(), key=lambda promise: promise[1])
    assert await inventory.outcome("begin-payment", last, "order-1") == "done"
    await steps.set(which, 0)
    inventory.travel(3 * HOLD_MS)
    await sweep(inventory)
    ended = {
        await status(inventory, reservation_id) for reservation_id, _ in promised.values() if reservation_id != last
    }
    assert ended == {"expired"}
    assert await inventory.violations() == []


async def _true_ms(inventory: Inventory) -> int:
    """The time by the own clock of Redis, which the test does not step, moved like all clocks."""
    seconds, micros = await inventory.state.redis_stock.redis.time()
    return seconds * 1000 + micros // 1000 + inventory.state.redis_stock.clock_offset_ms


@pytest.mark.parametrize(("which", "by_ms"), each_clock(HOUR_MS, -HOUR_MS, 61_500))
async def test_one_clock_more_than_a_minute_off_pauses_the_sale_until_it_is_right(
    steps: Steps, selling: Inventory, caplog: pytest.LogCaptureFixture, which: str, by_ms: int
) -> None:
    held, until_ms = await hold(selling, "holder", "A-1-1")
    await steps.set(which, by_ms)

    with caplog.at_level(logging.WARNING, logger="onsale.clocks"):
        if which != "redis":  # the script that makes holds compares the clock of Redis itself
            await wait_until(selling.state.redis_stock.clocks.apart)
        refused = await selling.reserve("next", seats=["A-1-2"])
        assert problem(refused) == (503, "clocks-apart")
        assert int(refused.headers["retry-after"]) >= 1
        assert f"{abs(by_ms) // 1000 // 10}" in refused.json()["detail"], "names the clock and its offset"
        await wait_until(lambda: any(r.message == "clock.apart" for r in caplog.records))
    ready = await selling.fans.get("/readyz")
    assert ready.status_code == 200, "the service is ready, with a warning"
    assert "Nothing is sold" in ready.json()["warnings"][0]
    assert any("clocks" in violation["invariant"] for violation in await selling.violations())
    frame = await selling.state.availability.frame(selling.state.catalogue.layout(EVENT))
    assert not frame.ready, "the queue calls nobody meanwhile"
    assert await status(selling, held) == "pending_payment"
    assert await selling.outcome("begin-payment", held, "order-1") == "done", "holds can be paid"
    await steps.set(which, 0)

    async def selling_again() -> bool:
        return (await selling.reserve("next", seats=["A-1-2"])).status_code == 201

    await wait_until(selling_again)
    assert await selling.outcome("confirm", held, "order-1") == "done"
    assert await until_ms_of(selling, held) < until_ms + HOUR_MS, "a wrong clock promises nobody an hour"
    await wait_until(lambda: _is_clean(selling))
    assert "warnings" not in (await selling.fans.get("/readyz")).json()


async def _is_clean(inventory: Inventory) -> bool:
    return await inventory.violations() == []


@pytest.fixture
async def selling(steps: Steps, loops: None, inventory: Inventory) -> Inventory:
    """An inventory with its background loops and stepped clocks."""
    return inventory


async def test_a_revoked_pass_is_rebuilt_while_the_clock_of_the_database_is_ahead(
    steps: Steps, inventory: Inventory
) -> None:
    session = {"jti": "1-0-7-1", "holder": "gone", "expires_at_ms": now_ms() + HOLD_MS}
    await inventory.post_internal("/sessions/end", {"event_id": EVENT, "sessions": [session]})
    await steps.set("postgres", 2 * HOUR_MS)
    assert [jti for jti, _ in (await read_stock(inventory.state.db, EVENT)).revoked_passes] == ["1-0-7-1"]


async def test_a_clock_step_is_measured_and_logged(
    steps: Steps, inventory: Inventory, caplog: pytest.LogCaptureFixture
) -> None:
    for which, by_ms, label in (("redis", 14_000, "Redis"), ("postgres", -20_000, "PostgreSQL")):
        await steps.set(which, by_ms)
        with caplog.at_level(logging.WARNING, logger="onsale.clocks"):
            await read_clocks(inventory)
        assert caplog.records[-1].message == "clock.stepped"
        assert abs(CLOCK_SKEW.labels("inventory", label)._value.get() * 1000 - by_ms) < 1_000
    assert abs(inventory.state.redis_stock.clocks.slowest_ms() - now_ms() + 20_000) < 1_000
