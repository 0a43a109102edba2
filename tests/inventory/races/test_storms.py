"""Two thousand concurrent clients: no stock is held twice, and no free stock is refused."""

import asyncio
import random
from collections import Counter
from typing import Any

import httpx

from tests.inventory.conftest import EVENT, Inventory, event_file

CLIENTS = 2_000


def venue(**sections: int) -> dict[str, Any]:
    """Sections with rows of ten seats, and a GA section."""
    seated = {"kind": "seated", "seats_per_row": 10, "price_minor": 5000}
    files: list[dict[str, Any]] = [
        {"section_id": name, "name": name, "rows": n // 10, **seated} for name, n in sections.items() if name != "GA1"
    ]
    if "GA1" in sections:
        files.append({"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": sections["GA1"],
                     "price_minor": 3000})  # fmt: skip
    return {**event_file(), "sections": files}


async def reserve_at_once(inventory: Inventory, selections: list[dict[str, Any]]) -> list[httpx.Response]:
    return await asyncio.gather(*(inventory.reserve(f"fan-{i}", **selection) for i, selection in enumerate(selections)))


async def test_two_thousand_concurrent_requests_hold_a_hundred_seats_once(manual: Inventory) -> None:
    """Half of them name a seat, half take the best available."""
    await manual.put(venue(A=100))
    await manual.state.redis_monitor.check()
    dice = random.Random(100)
    named = [f"A-{dice.randint(1, 10)}-{dice.randint(1, 10)}" for _ in range(CLIENTS)]
    selections: list[dict[str, Any]] = [
        {"seats": [seat]} if i % 2 else {"best_available": {"quantity": 1}} for i, seat in enumerate(named)
    ]
    answers = await reserve_at_once(manual, selections)
    assert Counter(answer.status_code for answer in answers) == {201: 100, 409: CLIENTS - 100}
    seats = [seat for answer in answers if answer.status_code == 201 for seat in answer.json()["seats"]]
    assert len(seats) == len(set(seats)) == 100
    assert (await manual.post_internal("/stock", {"event_id": EVENT}))["sections"][0]["held"] == 100
    assert await manual.violations() == []
    assert (await manual.admin("POST", f"/events/{EVENT}/release-all")) == {"released": 100}
    assert await manual.violations(at_rest=True) == []


async def test_two_thousand_mixed_selections_are_held_whole_or_not_at_all(manual: Inventory) -> None:
    """Each selection has seats of two sections and GA tickets. Afterwards all free stock can be held."""
    await manual.put(venue(A=60, B=40, GA1=100))
    await manual.state.redis_monitor.check()
    dice = random.Random(200)
    selections = [_mixed(dice) for _ in range(CLIENTS)]
    answers = await reserve_at_once(manual, selections)
    assert {answer.status_code for answer in answers} == {201, 409}
    held = [
        (selection, answer.json()) for selection, answer in zip(selections, answers, strict=True) if answer.is_success
    ]
    seats = [seat for _, body in held for seat in body["seats"]]
    assert len(seats) == len(set(seats))
    for selection, body in held:
        assert (sorted(body["seats"]), body["ga_quantity"]) == (sorted(selection["seats"]), selection["ga_quantity"])
    seats_held = {section: sum(seat.startswith(section) for seat in seats) for section in "AB"}
    tickets_held = sum(body["ga_quantity"] for _, body in held)
    stock = await manual.post_internal("/stock", {"event_id": EVENT})
    assert [s["held"] for s in stock["sections"]] == [seats_held["A"], seats_held["B"], tickets_held]
    assert await manual.violations() == []
    await _all_free_stock_can_be_held(manual, stock)


def _mixed(dice: random.Random) -> dict[str, Any]:
    seats = [f"A-{row}-{n}" for row in range(1, 7) for n in range(1, 11)]
    seats += [f"B-{row}-{n}" for row in range(1, 5) for n in range(1, 11)]
    return {"seats": dice.sample(seats, dice.randint(1, 4)), "ga_section": "GA1", "ga_quantity": dice.randint(1, 2)}


async def _all_free_stock_can_be_held(inventory: Inventory, stock: dict[str, Any]) -> None:
    available = {s["section_id"]: s["available"] for s in stock["sections"]}
    selections: list[dict[str, Any]] = [{"ga_section": "GA1", "ga_quantity": 1}] * available["GA1"]
    for section in "AB":
        selections += [{"best_available": {"quantity": 1, "section_id": section}}] * available[section]
    late = (inventory.reserve(f"late-{i}", **selection) for i, selection in enumerate(selections))
    assert {answer.status_code for answer in await asyncio.gather(*late)} == {201}
    assert [await inventory.counts(section) for section in ("A", "B", "GA1")] == [(0, 60), (0, 40), (0, 100)]
