"""Fans buy, give back and leave while operators block, unblock, open and resize, and Redis forgets all of it."""

import asyncio
import random
from typing import Any

import pytest

from tests.inventory.conftest import Inventory, event_file
from tests.inventory.redis_stock.test_rebuild import clean
from tests.support.wait import wait_until

FANS, STEPS, CHANGES = 8, 6, 25


def a_change(chance: random.Random, n: int) -> tuple[str, str, dict[str, Any]]:
    """Something an operator may ask for; half of it will be refused."""
    row = chance.randint(1, 3)
    some: dict[str, Any] = {
        "seats": [f"A-{row}-{chance.randint(1, 5)}"], "ga": [{"section_id": "GA1", "quantity": chance.randint(1, 4)}],
    }  # fmt: skip
    return chance.choice([
        ("POST", f"/seats/{chance.choice(['block', 'unblock'])}", some),
        ("POST", f"/seats/{chance.choice(['block', 'unblock'])}", {"rows": [{"section_id": "B", "rows": [1, 1]}]}),
        ("POST", "/sections/GA1/resize", {"capacity": chance.randint(5, 40)}),
        ("PUT", f"/allotments/a{n}", {"name": "Some", "kind": "house", **some}),
        ("POST", f"/allotments/a{chance.randint(0, n)}/open", {}),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("flushed", [False, True])
async def test_whatever_operators_do_meanwhile_the_audit_ends_clean(
    inventory: Inventory, seed: int, flushed: bool
) -> None:
    chance = random.Random(seed)
    answers: list[int] = []

    async def fan(i: int) -> None:
        for step in range(STEPS):
            wish: dict[str, Any] = {"seats": [f"A-{chance.randint(1, 3)}-{chance.randint(1, 5)}"]}
            wish |= {"ga_section": "GA1", "ga_quantity": 1} if step % 2 else {}
            made = await inventory.reserve(f"fan-{i}", **wish)
            answers.append(made.status_code)
            if made.status_code != 201:
                continue
            reservation_id = made.json()["reservation_id"]
            if chance.random() < 0.5:
                await inventory.mine("DELETE", reservation_id, f"fan-{i}")
            else:
                await inventory.step("begin-payment", reservation_id, f"order-{i}-{step}")
                await inventory.step("confirm", reservation_id, f"order-{i}-{step}")

    async def operator() -> None:
        for n in range(CHANGES):
            method, path, body = a_change(chance, n)
            answer = await inventory.operate(method, path, **body)
            assert answer.status_code in (200, 404, 409, 422), answer.text
            if flushed and n == CHANGES // 2:
                await inventory.state.redis_stock.redis.flushall()

    await asyncio.gather(*(fan(i) for i in range(FANS)), operator())
    assert set(answers) <= {201, 409, 429, 503}, "429: gave back again and again"
    assert answers.count(201) > 3
    if not flushed:
        assert await inventory.broken() == [], "nothing was left for reconcile"
    await inventory.ready()
    await wait_until(lambda: clean(inventory), timeout_s=15)
    report = (await inventory.operate("GET", "/stock")).json()["total"]
    parts = ("available", "held", "sold", "blocked", "kept_aside")
    assert sum(report[name] for name in parts) == report["capacity"]
    assert (await inventory.put(event_file())).status_code in (200, 409)
