"""The engine's clock is set forward and back while holds live: none ends early, none stays for ever."""

import random

import pytest

from services.inventory.keys import Keys
from services.inventory.sweeper import SCAN_BEHIND_MS
from tests.inventory.conftest import EVENT, Inventory

KEYS = Keys.of(EVENT)
GRACE_MS = 5_000


async def made(inventory: Inventory, holder: str, seat: str) -> tuple[str, int]:
    answer = await inventory.reserve(holder, seats=[seat], ga_section="GA1", ga_quantity=1)
    assert answer.status_code == 201, answer.text
    reservation_id = str(answer.json()["reservation_id"])
    return reservation_id, (await record(inventory, reservation_id))[1]


async def record(inventory: Inventory, reservation_id: str) -> tuple[str, int]:
    found = (await inventory.ask("/reservations/read", {"reservation_ids": [reservation_id]}))["reservations"][0]
    return str(found["status"]), int(found["reserved_until_ms"])


async def sweep(inventory: Inventory) -> int:
    """Both ways holds end; the engine's time afterwards."""
    await inventory.room.sweeper.sweep()
    await inventory.room.sweeper.scan()
    return int(await inventory.room.gate.redis.hget(KEYS.gate, "clock") or 0)


async def test_a_clock_set_back_frees_nothing_and_a_hold_made_then_is_not_cut_short(still: Inventory) -> None:
    first, until_ms = await made(still, "first", "A-1-1")
    still.travel(-3_600_000)
    second, second_until_ms = await made(still, "second", "A-1-2")
    assert second_until_ms >= until_ms, "the engine's time does not go back with its clock"
    await sweep(still)
    still.travel(3_600_000)
    await sweep(still)
    assert {(await record(still, r))[0] for r in (first, second)} == {"pending_payment"}
    still.travel(600_000 + GRACE_MS + 2 * SCAN_BEHIND_MS)
    await sweep(still)
    assert {(await record(still, r))[0] for r in (first, second)} == {"expired"}
    assert await still.broken(at_rest=True) == []


async def test_a_clock_set_back_while_paying_and_extending_loses_nothing(still: Inventory) -> None:
    """Deadlines that came from the ledger's clock are never earlier than what the fan was promised."""
    extended, extended_until_ms = await made(still, "one", "A-1-1")
    paying, paying_until_ms = await made(still, "two", "A-1-2")
    still.travel(-1_800_000)
    assert (await still.mine("POST", extended, "one", more="/extend")).status_code == 200
    assert (await still.step("begin-payment", paying, "order-1"))["word"] == "done"
    await sweep(still)
    assert (await record(still, extended))[1] >= extended_until_ms
    assert (await record(still, paying))[1] >= paying_until_ms
    still.travel(1_800_000)
    await sweep(still)
    assert (await record(still, extended))[0] == "pending_payment"
    assert (await still.step("confirm", paying, "order-1"))["word"] == "done"
    assert await still.broken() == []


@pytest.mark.parametrize("seed", range(4))
async def test_wherever_the_clock_jumps_no_hold_ends_early_and_none_leaks(still: Inventory, seed: int) -> None:
    drawn = random.Random(seed)
    promised: dict[str, int] = {}
    for turn in range(12):
        still.travel(drawn.choice([-900_000, -30_000, -5_000, 4_000, 45_000, 400_000, 700_000]))
        reservation_id, until_ms = await made(still, f"fan-{turn}", f"A-{turn // 5 + 1}-{turn % 5 + 1}")
        promised[reservation_id] = until_ms
        engine_ms = await sweep(still)
        for known, known_until_ms in promised.items():
            status, _ = await record(still, known)
            early = status == "expired" and engine_ms <= known_until_ms + GRACE_MS
            assert not early, f"turn {turn}: ended {known_until_ms + GRACE_MS - engine_ms} ms early"
    still.room.gate.clock_offset_ms = 10_000_000
    await sweep(still)
    assert {(await record(still, known))[0] for known in promised} == {"expired"}
    assert await still.broken(at_rest=True) == []
