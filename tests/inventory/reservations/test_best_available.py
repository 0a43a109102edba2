"""Best available: Redis picks the seats in one script, compared with an exhaustive search."""

import asyncio
import itertools
import os
import re
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from services.inventory.redis_stock.client import HoldDenied
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.inventory.redis_stock.test_scripts import EVENT as SCRIPT_EVENT
from tests.inventory.redis_stock.test_scripts import hold_arguments, open_stock

EXAMPLES = int(os.environ.get("ONSALE_EXAMPLES", "30"))


async def pick(redis_url: str, rows: list[str], n: int, *, split: bool = False, tidy: bool = True) -> Any:
    """The positions that Redis picks in section A with these rows, or its denial."""
    marks, width = "|".join(rows), len(rows[0]) + 1
    best = {
        "quantity": n,
        "price_blocks": [["A", 0, len(marks) - 1, width]],
        "split": split,
        "tidy": tidy,
        "avoid": [{}],
        "types": "",
    }
    arguments = hold_arguments("", reservation_id=uuid.uuid4().hex, holder=uuid.uuid4().hex) | {"best": best}
    del arguments["selection"]
    async with Redis.from_url(redis_url) as redis:
        outcome = (await (await open_stock(redis, a=marks)).hold(SCRIPT_EVENT, [arguments]))[0]
    if isinstance(outcome, HoldDenied):
        return outcome
    return [int(position) for position in outcome.selection.partition(":")[2].split(",")]


def singles(row: str, at: int, n: int) -> int:
    """Free seats next to the group that would be left without a free neighbour."""
    left = at >= 1 and row[at - 1] == "." and (at == 1 or row[at - 2] != ".")
    after = at + n
    right = after < len(row) and row[after] == "." and (after + 1 == len(row) or row[after + 1] != ".")
    return left + right


def exhaustive_search(rows: list[str], n: int, *, tidy: bool) -> list[int] | None:
    """The expected seats: in the first row that leaves no single seat, else in the first row with room; there with the
    fewest single seats, then nearest to the middle, then leftmost.
    """
    width, found = len(rows[0]) + 1, []
    for r, row in enumerate(rows):
        places = [at for at in range(len(row) - n + 1) if row[at : at + n] == "." * n]
        for at in places:
            off = abs(at - (len(row) - n) / 2)
            left = singles(row, at, n) if tidy else 0
            found.append((left > 0, r, left, off, at))
    if not found:
        return None
    _, r, _, _, at = min(found)
    return [r * width + at + i for i in range(n)]


every_example = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
rows_of_seats = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.text(".hsx", min_size=width, max_size=width), min_size=1, max_size=5)
)


@every_example
@given(rows=rows_of_seats, n=st.integers(1, 5), tidy=st.booleans())
def test_redis_picks_the_same_seats_as_an_exhaustive_search(
    rows: list[str], n: int, tidy: bool, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    picked = loop_runner.run(pick(redis_url, rows, n, tidy=tidy))
    expected = exhaustive_search(rows, n, tidy=tidy)
    if expected is not None:
        assert picked == expected
    else:
        enough = sum(row.count(".") for row in rows) >= n
        assert picked.outcome == ("no-adjacent-seats" if enough else "sold-out")


@every_example
@given(rows=rows_of_seats, n=st.integers(1, 8))
def test_a_split_pick_succeeds_with_the_fewest_groups_while_enough_seats_are_free(
    rows: list[str], n: int, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    marks = "|".join(rows)
    picked = loop_runner.run(pick(redis_url, rows, n, split=True))
    if marks.count(".") < n:
        assert picked.outcome == "sold-out"
        return
    assert len(set(picked)) == n
    assert all(marks[position] == "." for position in picked)
    groups = 1 + sum(1 for position, following in itertools.pairwise(picked) if following != position + 1)
    longest = sorted(map(len, re.findall(r"\.+", marks)), reverse=True)
    assert groups == next(k for k in range(1, len(longest) + 1) if sum(longest[:k]) >= n)


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    with asyncio.Runner() as runner:
        yield runner


async def test_without_a_section_the_most_expensive_zone_within_the_price_is_picked(inventory: Inventory) -> None:
    async def best(holder: str, **options: Any) -> Any:
        return (await inventory.reserve(holder, best_available={"quantity": 2, **options})).json()

    assert (await best("rich"))["seats"] == ["A-1-1", "A-1-2"]
    assert (await best("careful", max_price_minor=4500))["seats"] == ["B-1-1", "B-1-2"]
    floor = await best("poor", max_price_minor=3500)
    assert (floor["ga_section"], floor["ga_quantity"], floor["seats"]) == ("GA1", 2, [])
    assert floor["total_amount_minor_units"] == 6200
    assert (await best("dreamer", max_price_minor=100))["type"] == "/problems/sold-out"
    assert (await best("lost", section_id="Z"))["type"] == "/problems/unknown-section"


async def test_a_refusal_names_the_largest_group_and_a_split_request_succeeds(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["B-1-2", "B-2-2"])
    best = {"quantity": 3, "section_id": "B"}
    refused = (await inventory.reserve("three", best_available=best)).json()
    assert (refused["type"], refused["together"]) == ("/problems/no-adjacent-seats", 2)
    groups = (await inventory.reserve("three", best_available=best | {"split": True})).json()
    assert groups["seats"] == ["B-1-1", "B-1-3", "B-1-4"]


@pytest.mark.parametrize(("left", "said", "available"), [
    ([2, 0], "Only 2 of these tickets are left in Block B.", {"B": 2}),
    ([1, 0], "Only 1 of these tickets is left in Block B.", {"B": 1}),
    ([0, 0], "None of these tickets is left in Block B.", {"B": 0}),
])  # fmt: skip
async def test_a_refusal_says_how_many_are_left_in_the_section(
    inventory: Inventory, left: list[int], said: str, available: dict[str, int]
) -> None:
    kept = [f"B-{row + 1}-{n + 1}" for row, count in enumerate(left) for n in range(count)]
    every = [f"B-{row}-{n}" for row in (1, 2) for n in range(1, 5)]
    await inventory.put(event_file(tickets_per_order=10, tickets_per_customer=10))
    gone = [seat for seat in every if seat not in kept]
    await inventory.reserve("early", seats=gone, token=make_pass("early", qty_max=10))
    refused = (await inventory.reserve("late", best_available={"quantity": 3, "section_id": "B"})).json()
    assert (refused["type"], refused["detail"], refused["available"]) == ("/problems/sold-out", said, available)


async def test_rows_of_another_price_are_not_counted_as_left(inventory: Inventory) -> None:
    """A has more seats than are wanted, but not at this price: neither "apart" nor "of the section" would be true."""
    file = event_file(tickets_per_order=10, tickets_per_customer=10)
    file["sections"][0]["price_levels"] = [{"name": "Back", "rows": [2, 2], "price_minor": 100, "fee_minor": 0}]
    await inventory.put(file)
    await inventory.reserve("one", seats=["A-2-3", "A-2-4", "A-2-5"])
    best = {"quantity": 3, "section_id": "A", "max_price_minor": 200, "split": True}
    refused = (await inventory.reserve("late", best_available=best)).json()
    assert (refused["type"], refused["available"]) == ("/problems/sold-out", {"A": 2})
    everywhere = (await inventory.reserve("late", best_available={"quantity": 6, "max_price_minor": 200})).json()
    assert everywhere["detail"] == "Only 2 of these tickets are left in Block A."


async def test_a_single_seat_left_over_never_refuses_the_last_request(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["B-1-1", "B-2-1"])
    for holder in ("two", "three"):
        answer = await inventory.reserve(holder, best_available={"quantity": 2, "section_id": "B"})
        assert len(answer.json()["seats"]) == 2
    assert await inventory.violations() == []


async def test_a_repeated_request_gets_the_same_seats(inventory: Inventory) -> None:
    best = {"quantity": 2}
    first = (await inventory.reserve("fan", best_available=best)).json()
    again = (await inventory.reserve("fan", best_available=best)).json()
    assert (again["reservation_id"], again["seats"]) == (first["reservation_id"], first["seats"])
    repeated = [await inventory.reserve("other", key="k1", best_available=best) for _ in range(2)]
    assert repeated[0].json() == repeated[1].json()
    other = await inventory.reserve("other", key="k1", best_available={"quantity": 3})
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


async def test_rows_can_have_their_own_prices(inventory: Inventory) -> None:
    file = event_file()
    levels = [{"name": "Front", "rows": [1, 1], "price_minor": 9000, "fee_minor": 500}]
    file["sections"][0]["price_levels"] = levels
    assert (await inventory.put(file)).json()["changed"] is True
    assert (await inventory.put(file)).json()["changed"] is False
    section = (await inventory.fans.get(f"/events/{EVENT}")).json()["sections"][0]
    assert section["price_levels"] == [{"name": "Front", "rows": [1, 1], "price_minor": 9500, "prices": {}}]
    assert section["price_minor"] == 5250
    bought = (await inventory.reserve("fan", seats=["A-1-5", "A-2-5"])).json()
    assert bought["total_amount_minor_units"] == 9500 + 5250
    cheap = await inventory.reserve("other", best_available={"quantity": 2, "section_id": "A", "max_price_minor": 6000})
    assert cheap.json()["seats"] == ["A-2-3", "A-2-4"]
    file["sections"][0]["price_levels"] = [{**levels[0], "price_minor": 1}]
    await inventory.put(file)
    kept = (await inventory.fan_request("GET", bought["reservation_id"])).json()
    assert kept["total_amount_minor_units"] == 9500 + 5250


@pytest.mark.parametrize("rows", [[[0, 1]], [[2, 1]], [[3, 4]], [[1, 2], [2, 3]]])
async def test_price_levels_with_invalid_rows_are_refused(inventory: Inventory, rows: list[list[int]]) -> None:
    file = event_file()
    file["sections"][0]["price_levels"] = [{"name": "Odd", "rows": r, "price_minor": 1} for r in rows]
    assert (await inventory.put(file)).status_code == 422


async def test_price_blocks_are_computed_once(inventory: Inventory) -> None:
    """Computed for each request, the price blocks of 500 sections took 60 ms."""
    sections = inventory.state.catalogue.layout(EVENT).sections.values()
    assert sections
    assert all(section.price_blocks is section.price_blocks for section in sections)
