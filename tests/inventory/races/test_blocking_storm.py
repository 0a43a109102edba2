"""Fans hold, release and buy while operators block, unblock, open and resize, with and without a flush of Redis."""

import asyncio
import random
from typing import Any

import pytest

from tests.inventory.actions import buy, is_clean
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.support.wait import wait_until

FANS, HOLDS_PER_FAN, CHANGES = 8, 6, 25


def stock_change(dice: random.Random, n: int) -> tuple[str, str, dict[str, Any]]:
    """A random request of an operator; about half are refused."""
    row = dice.randint(1, 3)
    selection: dict[str, Any] = {
        "seats": [f"A-{row}-{dice.randint(1, 5)}"], "ga": [{"section_id": "GA1", "quantity": dice.randint(1, 4)}],
    }  # fmt: skip
    return dice.choice([
        ("POST", f"/seats/{dice.choice(['block', 'unblock'])}", selection),
        ("POST", f"/seats/{dice.choice(['block', 'unblock'])}", {"rows": [{"section_id": "B", "rows": [1, 1]}]}),
        ("POST", "/sections/GA1/resize", {"capacity": dice.randint(5, 40)}),
        ("PUT", f"/allotments/a{n}", {"name": "Some", "kind": "house", **selection}),
        ("POST", f"/allotments/a{dice.randint(0, n)}/open", {}),
    ])  # fmt: skip


@pytest.mark.parametrize(("seed", "flushed"), [(1, False), pytest.param(2, True, marks=pytest.mark.proof)])
@pytest.mark.usefixtures("loops")
async def test_the_invariants_hold_after_concurrent_sales_and_stock_changes(
    inventory: Inventory, seed: int, flushed: bool
) -> None:
    dice, epoch = random.Random(seed), inventory.state.catalogue.layout(EVENT).redis_epoch
    answers: list[int] = []

    async def fan(i: int) -> None:
        for n in range(HOLDS_PER_FAN):
            body: dict[str, Any] = {"seats": [f"A-{dice.randint(1, 3)}-{dice.randint(1, 5)}"]}
            body |= {"ga_section": "GA1", "ga_quantity": 1} if n % 2 else {}
            answer = await inventory.reserve(f"fan-{i}", **body)
            answers.append(answer.status_code)
            if answer.status_code != 201:
                continue
            reservation_id = answer.json()["reservation_id"]
            if dice.random() < 0.5:
                await inventory.fan_request("DELETE", reservation_id, f"fan-{i}")
            else:
                await buy(inventory, reservation_id, f"order-{i}-{n}")

    async def operator() -> None:
        for n in range(CHANGES):
            method, path, body = stock_change(dice, n)
            answer = await inventory.operate(method, path, **body)
            assert answer.status_code in (200, 404, 409, 422), answer.text
            if flushed and n == CHANGES // 2:
                await inventory.state.redis_stock.redis.flushall()

    await asyncio.gather(*(fan(i) for i in range(FANS)), operator())
    assert set(answers) <= {201, 409, 429, 503}, "429 follows repeated releases"
    assert answers.count(201) > 3
    if not flushed:
        assert await inventory.violations() == [], "nothing is left to reconcile"
        assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"
    await inventory.until_ready()
    await wait_until(lambda: is_clean(inventory))
    report = (await inventory.operate("GET", "/stock")).json()["total"]
    parts = ("available", "held", "sold", "blocked", "kept_aside")
    assert sum(report[name] for name in parts) == report["capacity"]
    assert (await inventory.put(event_file())).status_code in (200, 409)
