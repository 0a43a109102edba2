"""Two thousand clients at once, over HTTP in this process: nothing is held twice, and nothing lies idle."""

import asyncio
import random
from collections import Counter
from typing import Any

import httpx

from tests.inventory.conftest import EVENT, Inventory, event_file

CLIENTS = 2_000


def venue(**sections: int) -> dict[str, Any]:
    """Rows of ten, and a floor; one ticket price."""
    seated = {"kind": "seated", "seats_per_row": 10, "price_minor": 5000}
    made: list[dict[str, Any]] = [
        {"section_id": name, "name": name, "rows": n // 10, **seated} for name, n in sections.items() if name != "GA1"
    ]
    if "GA1" in sections:
        made.append({"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": sections["GA1"],
                     "price_minor": 3000})  # fmt: skip
    return {**event_file(), "sections": made}


async def rush(inventory: Inventory, selections: list[dict[str, Any]]) -> list[httpx.Response]:
    return await asyncio.gather(*(inventory.reserve(f"fan-{i}", **selection) for i, selection in enumerate(selections)))


async def test_two_thousand_want_the_last_hundred_seats(still: Inventory) -> None:
    """Half name a seat, half take the best there is."""
    await still.put(venue(A=100))
    await still.state.redis_monitor.check()
    drawn = random.Random(100)
    named = [f"A-{drawn.randint(1, 10)}-{drawn.randint(1, 10)}" for _ in range(CLIENTS)]
    selections: list[dict[str, Any]] = [
        {"seats": [seat]} if i % 2 else {"best_available": {"quantity": 1}} for i, seat in enumerate(named)
    ]
    answers = await rush(still, selections)
    assert Counter(answer.status_code for answer in answers) == {201: 100, 409: CLIENTS - 100}
    got = [seat for answer in answers if answer.status_code == 201 for seat in answer.json()["seats"]]
    assert len(got) == len(set(got)) == 100
    assert (await still.ask("/stock", {"event_id": EVENT}))["sections"][0]["held"] == 100
    assert await still.broken() == []
    assert (await still.admin("POST", f"/events/{EVENT}/release-all")) == {"released": 100}
    assert await still.broken(at_rest=True) == []


async def test_two_thousand_mixed_baskets_are_taken_whole_or_not_at_all(still: Inventory) -> None:
    """Seats of two sections and the floor in one selection. What is left afterwards is really there for
    the next fan.
    """
    await still.put(venue(A=60, B=40, GA1=100))
    await still.state.redis_monitor.check()
    drawn = random.Random(200)
    selections = [_mixed(drawn) for _ in range(CLIENTS)]
    answers = await rush(still, selections)
    assert {answer.status_code for answer in answers} == {201, 409}
    won = [
        (selection, answer.json()) for selection, answer in zip(selections, answers, strict=True) if answer.is_success
    ]
    seats = [seat for _, got in won for seat in got["seats"]]
    assert len(seats) == len(set(seats))
    for selection, got in won:
        assert (sorted(got["seats"]), got["ga_quantity"]) == (sorted(selection["seats"]), selection["ga_quantity"])
    held = {section: sum(seat.startswith(section) for seat in seats) for section in "AB"}
    floor = sum(got["ga_quantity"] for _, got in won)
    stock = await still.ask("/stock", {"event_id": EVENT})
    assert [s["held"] for s in stock["sections"]] == [held["A"], held["B"], floor]
    assert await still.broken() == []
    await _everything_left_can_be_had(still, stock)


def _mixed(drawn: random.Random) -> dict[str, Any]:
    places = [f"A-{row}-{n}" for row in range(1, 7) for n in range(1, 11)]
    places += [f"B-{row}-{n}" for row in range(1, 5) for n in range(1, 11)]
    return {"seats": drawn.sample(places, drawn.randint(1, 4)), "ga_section": "GA1", "ga_quantity": drawn.randint(1, 2)}


async def _everything_left_can_be_had(inventory: Inventory, stock: dict[str, Any]) -> None:
    left = {s["section_id"]: s["available"] for s in stock["sections"]}
    wanted: list[dict[str, Any]] = [{"ga_section": "GA1", "ga_quantity": 1}] * left["GA1"]
    for section in "AB":
        wanted += [{"best_available": {"quantity": 1, "section_id": section}}] * left[section]
    late = (inventory.reserve(f"late-{i}", **selection) for i, selection in enumerate(wanted))
    assert {answer.status_code for answer in await asyncio.gather(*late)} == {201}
    assert [await inventory.left(section) for section in ("A", "B", "GA1")] == [(0, 60), (0, 40), (0, 100)]
