"""Single seats: what a choice leaves alone and what is better is compared with an exhaustive search."""

import asyncio
import os
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from services.inventory.redis_stock.client import HoldDenied, HoldGranted
from tests.inventory.actions import seat_marks
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.inventory.redis_stock.test_scripts import EVENT as SCRIPT_EVENT
from tests.inventory.redis_stock.test_scripts import hold_arguments, open_stock
from tests.support.running.suite import bearer

EXAMPLES = int(os.environ.get("ONSALE_EXAMPLES", "60"))


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    with asyncio.Runner() as runner:
        yield runner


# -- compared with an exhaustive search --------------------------------------------------------------------------------


def alone_in(row: str) -> set[int]:
    """The available seats of a row without an available neighbour."""
    padded = f"|{row}|"
    return {at for at in range(len(row)) if row[at] == "." and "." not in (padded[at], padded[at + 2])}


def newly_alone(row: str, chosen: set[int]) -> set[int]:
    after = "".join("h" if at in chosen else mark for at, mark in enumerate(row))
    return alone_in(after) - alone_in(row)


def better_places(rows: list[str], number: int, n: int, first: int, used: set[int]) -> tuple[int, int] | None:
    """The row and first seat of `n` seats side by side that leave none alone: by distance of the row, the front one
    first, then by distance in the row, the left one first.
    """
    found = [
        (abs(r - number), r, abs(at - first), at)
        for r, row in enumerate(rows)
        if r == number or r not in used
        for at in range(len(row) - n + 1)
        if row[at : at + n] == "." * n and not newly_alone(row, set(range(at, at + n)))
    ]
    return (min(found)[1], min(found)[3]) if found else None


def expected(rows: list[str], chosen: dict[int, set[int]]) -> tuple[list[int], list[int]]:
    """The positions left alone, and the better choice, empty if there is none."""
    width = len(rows[0]) + 1
    left, better, moved, used = list[int](), list[int](), False, set(chosen)
    for number, seats in sorted(chosen.items()):
        alone, place = newly_alone(rows[number], seats), None
        left += [number * width + at for at in sorted(alone)]
        if alone:
            place = better_places(rows, number, len(seats), min(seats), used)
        if place:
            moved, (row, at) = True, place
            used.add(row)
            better += [row * width + at + i for i in range(len(seats))]
        else:
            better += [number * width + at for at in seats]
    return left, sorted(better) if moved else []


def positions(places: str) -> list[int]:
    """From a selection's text, all in section A."""
    parts = [part.partition(":")[2] for part in places.split(";") if part]
    return sorted(int(position) for part in parts for position in part.split(","))


async def choose(
    redis_url: str, rows: list[str], chosen: list[int], *, refuse: bool = False, avoid: Any = None
) -> HoldGranted | HoldDenied:
    marks, width = "|".join(rows), len(rows[0]) + 1
    asked = {"blocks": [["A", 0, len(marks) - 1, width]], "avoid": avoid or {}, "refuse": refuse}
    selection = "A:" + ",".join(map(str, sorted(chosen)))
    arguments = hold_arguments(selection, reservation_id=uuid.uuid4().hex, holder=uuid.uuid4().hex, single_seats=asked)
    async with Redis.from_url(redis_url) as redis:
        return (await (await open_stock(redis, a=marks)).hold(SCRIPT_EVENT, [arguments]))[0]


def chosen_of(rows: list[str], picks: list[int]) -> dict[int, set[int]]:
    """Some of the available seats, by row."""
    free = [(r, at) for r, row in enumerate(rows) for at, mark in enumerate(row) if mark == "."]
    chosen = dict[int, set[int]]()
    for pick in picks:
        if free:
            row, at = free.pop(pick % len(free))
            chosen.setdefault(row, set()).add(at)
    return chosen


ROWS = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.text("...hsx", min_size=width, max_size=width), min_size=1, max_size=5)
)
PICKS = st.lists(st.integers(0, 50), min_size=1, max_size=5)
every_example = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@every_example
@given(rows=ROWS, picks=PICKS, refuse=st.booleans())
def test_what_is_left_alone_and_what_is_better_is_that_of_an_exhaustive_search(
    rows: list[str], picks: list[int], refuse: bool, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    chosen, width = chosen_of(rows, picks), len(rows[0]) + 1
    if not chosen:
        return
    seats = [r * width + at for r, ats in chosen.items() for at in ats]
    answer = loop_runner.run(choose(redis_url, rows, seats, refuse=refuse))
    left, better = expected(rows, chosen)
    if isinstance(answer, HoldDenied):
        assert refuse
        assert better
        assert answer.outcome == "single-seat"
        told = answer.detail.split("|")
    else:
        assert not (refuse and left and better)
        told = [answer.left_alone, answer.better]
    assert [positions(each) for each in told] == [sorted(left), better]


@every_example
@given(rows=ROWS, picks=PICKS)
def test_the_better_choice_of_one_row_is_never_refused(
    rows: list[str], picks: list[int], loop_runner: asyncio.Runner, redis_url: str
) -> None:
    chosen, width = chosen_of(rows, picks), len(rows[0]) + 1
    if len(chosen) != 1:
        return
    seats = [r * width + at for r, ats in chosen.items() for at in ats]
    answer = loop_runner.run(choose(redis_url, rows, seats, refuse=True))
    if isinstance(answer, HoldDenied):
        instead = positions(answer.detail.split("|")[1])
        assert len(instead) == len(seats)
        taken = loop_runner.run(choose(redis_url, rows, instead, refuse=True))
        assert isinstance(taken, HoldGranted)
        assert not taken.left_alone


async def test_places_that_nobody_is_offered_are_neither_alone_nor_better(redis_url: str) -> None:
    async def told(rows: list[str], seats: list[int], **more: Any) -> list[list[int]]:
        granted = await choose(redis_url, rows, seats, **more)
        assert isinstance(granted, HoldGranted)
        return [positions(granted.left_alone), positions(granted.better)]

    rows = ["....x", "....."]
    assert await told(rows, [1]) == [[0], [0]]
    assert await told(rows, [1], avoid={"A": [[0, 0]]}) == [[], []]
    assert await told(rows, [1, 2], avoid={"A": [[0, 0]]}) == [[3], [6, 7]]
    assert await told(rows, [1, 2], avoid={"A": [[0, 0], [6, 10]]}) == [[3], []]
    assert await told(rows, [1, 2], avoid={"A": [[1, 1]]}) == [[0, 3], []], "its own places are for some fans only"


# -- the API -----------------------------------------------------------------------------------------------------------


async def ask_for(inventory: Inventory, rule: str | None) -> None:
    sales = {} if rule is None else {"single_seats": rule}
    assert (await inventory.put(event_file(**sales))).status_code == 200


async def test_a_fan_who_leaves_a_seat_alone_is_told_and_gets_what_they_chose(inventory: Inventory) -> None:
    answer = await inventory.reserve(seats=["B-1-2"], key="k")
    assert answer.status_code == 201
    assert answer.json()["single_seats"] == {"left_alone": ["B-1-1"], "better": ["B-1-1"]}
    again = await inventory.reserve(seats=["B-1-2"], key="k")
    assert again.json() == answer.json() | {"single_seats": None}, "a repeat is the reservation, without what was told"
    fine = await inventory.reserve("other", seats=["B-2-1", "B-2-2"])
    assert fine.json()["single_seats"] is None


async def keep(inventory: Inventory, reservation_id: str, *seats: str) -> Any:
    """The answer to a fan who keeps these seats."""
    path, body = f"/events/{EVENT}/reservations/{reservation_id}/keep", {"seats": list(seats)}
    answer = await inventory.fans.post(path, json=body, headers=bearer(make_pass("fan")))
    assert answer.status_code == 200, answer.text
    return answer.json()["single_seats"]


async def test_an_event_that_allows_it_says_nothing(inventory: Inventory) -> None:
    await ask_for(inventory, "allow")
    assert (await inventory.reserve(seats=["B-1-2"])).json()["single_seats"] is None
    assert (await inventory.fans.get(f"/events/{EVENT}")).json()["limits"]["single_seats"] == "allow"


async def test_an_event_that_refuses_it_offers_the_nearest_better_seats(inventory: Inventory) -> None:
    await ask_for(inventory, "refuse")
    refused = await inventory.reserve(seats=["B-1-2"])
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/single-seat")
    assert (refused.json()["seats"], refused.json()["better"]) == (["B-1-1"], ["B-1-1"])
    assert refused.json()["detail"] == (
        "B-1-1 would be left alone. Choose B-1-1 instead, or other seats. Nothing was reserved."
    )
    taken = await inventory.reserve(seats=refused.json()["better"])
    assert (taken.status_code, taken.json()["single_seats"]) == (201, None)


async def test_what_leaves_one_alone_is_sold_when_nothing_else_is_left(inventory: Inventory) -> None:
    await ask_for(inventory, "refuse")
    everything_else = ["B-1-1", "B-1-2", "B-1-3", "B-1-4", "B-2-1"]
    await inventory.reserve("early", seats=everything_else, token=make_pass("early", qty_max=6))
    answer = await inventory.reserve(seats=["B-2-2", "B-2-3"])
    assert answer.status_code == 201
    assert answer.json()["single_seats"] == {"left_alone": ["B-2-4"], "better": None}


async def test_two_fans_side_by_side_never_leave_a_seat_alone_together(inventory: Inventory) -> None:
    await ask_for(inventory, "refuse")
    answers = await asyncio.gather(
        inventory.reserve("left", seats=["B-1-1"]), inventory.reserve("right", seats=["B-1-3", "B-1-4"])
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert await seat_marks(inventory, "B") in ("h...|....", "..hh|....")


async def test_nobody_is_sent_to_seats_at_another_price(inventory: Inventory) -> None:
    file = event_file(single_seats="refuse")
    file["sections"][0]["price_levels"] = [{"name": "Front", "rows": [1, 1], "price_minor": 9000}]
    assert (await inventory.put(file)).status_code == 200
    await inventory.reserve("early", seats=["A-1-4", "A-1-5"])
    answer = await inventory.reserve(seats=["A-1-1", "A-1-2"])
    assert answer.json()["single_seats"] == {"left_alone": ["A-1-3"], "better": None}
    behind = await inventory.reserve("behind", seats=["A-2-1", "A-2-2", "A-2-4", "A-2-5"])
    assert behind.json()["single_seats"] == {"left_alone": ["A-2-3"], "better": None}


async def test_a_part_that_is_given_back_may_leave_one_alone_and_that_is_told(inventory: Inventory) -> None:
    await ask_for(inventory, "refuse")
    held = (await inventory.reserve(seats=["B-1-1", "B-1-2", "B-1-3", "B-1-4"])).json()["reservation_id"]
    assert await keep(inventory, held, "B-1-1", "B-1-2", "B-1-4") == {"left_alone": ["B-1-3"], "better": None}
    assert await keep(inventory, held, "B-1-1", "B-1-2", "B-1-4") is None, "a repeat releases nothing"
    assert await keep(inventory, held, "B-1-1") is None


async def test_an_order_of_the_best_seats_is_never_refused(inventory: Inventory) -> None:
    await ask_for(inventory, "refuse")
    for n in range(4):
        answer = await inventory.reserve(f"fan{n}", best_available={"quantity": 3, "section_id": "A"})
        assert answer.status_code in (201, 409)
        assert answer.json().get("type") != "/problems/single-seat"


async def test_the_event_file_keeps_the_rule(inventory: Inventory) -> None:
    bad = await inventory.put(event_file(single_seats="perhaps"))
    assert bad.status_code == 422
    await ask_for(inventory, "refuse")
    await ask_for(inventory, None)
    assert (await inventory.fans.get(f"/events/{EVENT}")).json()["limits"]["single_seats"] == "tell"
