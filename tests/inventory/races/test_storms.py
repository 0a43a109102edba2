"""Six hundred concurrent clients: no stock is held twice, and no free stock is refused."""

import asyncio
import random
from typing import Any

import pytest

from tests.inventory.conftest import EVENT, Inventory, event_file

CLIENTS = 600


@pytest.fixture(autouse=True)
def nobody_is_refused_for_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr("shared.process.load.LEAST_MAX", CLIENTS)


async def put_on_sale(inventory: Inventory, **rows: int) -> None:
    """Sections with so many rows of ten seats, and a hundred GA tickets."""
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 100, "price_minor": 3000}
    seated = {"kind": "seated", "seats_per_row": 10, "price_minor": 5000}
    sections = [{"section_id": name, "name": name, "rows": n, **seated} for name, n in rows.items()]
    assert (await inventory.put({**event_file(), "sections": [*sections, floor]})).is_success
    await inventory.state.redis_monitor.check()


async def test_six_hundred_mixed_selections_are_held_whole_or_not_at_all(inventory: Inventory) -> None:
    """Each selection has seats of two sections and GA tickets; every fifth takes the best available instead. Afterwards
    all free stock can be held, and all of it be released.
    """
    await put_on_sale(inventory, A=6, B=4)
    dice = random.Random(200)
    selections = [_mixed(dice) if i % 5 else _best(dice) for i in range(CLIENTS)]
    requests = (inventory.reserve(f"fan-{i}", **selection) for i, selection in enumerate(selections))
    answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} == {201, 409}
    held = [
        (selection, answer.json()) for selection, answer in zip(selections, answers, strict=True) if answer.is_success
    ]
    seats = [seat for _, body in held for seat in body["seats"]]
    assert len(seats) == len(set(seats))
    for selection, body in held:
        if best := selection.get("best_available"):
            assert (len(body["seats"]), body["ga"]) == (best["quantity"], [])
        else:
            assert sorted(body["seats"]) == sorted(selection["seats"])
            assert body["ga_quantity"] == selection["ga_quantity"]
    seats_held = {section: sum(seat.startswith(section) for seat in seats) for section in "AB"}
    tickets_held = sum(body["ga_quantity"] for _, body in held)
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [s["held"] for s in stock["sections"]] == [seats_held["A"], seats_held["B"], tickets_held]
    assert await inventory.violations() == []
    await _all_free_stock_can_be_held(inventory, stock)
    assert (await inventory.admin("POST", f"/events/{EVENT}/release-all", reason="the wrong prices"))["released"] > len(
        held
    )
    free = [await inventory.redis_counts(section) for section in ("A", "B", "GA1")]
    assert (free, await inventory.violations()) == ([(60, 0), (40, 0), (100, 0)], [])


def _mixed(dice: random.Random) -> dict[str, Any]:
    seats = [f"A-{row}-{n}" for row in range(1, 7) for n in range(1, 11)]
    seats += [f"B-{row}-{n}" for row in range(1, 5) for n in range(1, 11)]
    return {"seats": dice.sample(seats, dice.randint(1, 4)), "ga_section": "GA1", "ga_quantity": dice.randint(1, 2)}


def _best(dice: random.Random) -> dict[str, Any]:
    return {"best_available": {"quantity": dice.randint(1, 3), "split": True, "section_id": "A"}}


async def _all_free_stock_can_be_held(inventory: Inventory, stock: dict[str, Any]) -> None:
    available = {s["section_id"]: s["available"] for s in stock["sections"]}
    selections: list[dict[str, Any]] = [{"ga_section": "GA1", "ga_quantity": 1}] * available["GA1"]
    for section in "AB":
        selections += [{"best_available": {"quantity": 1, "section_id": section}}] * available[section]
    late = (inventory.reserve(f"late-{i}", **selection) for i, selection in enumerate(selections))
    assert {answer.status_code for answer in await asyncio.gather(*late)} == {201}
    assert [await inventory.counts(section) for section in ("A", "B", "GA1")] == [(0, 60), (0, 40), (0, 100)]
