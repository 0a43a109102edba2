"""Best available: picked by Redis in one step, checked against somebody who tries everything."""

import asyncio
import itertools
import os
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from services.inventory.redis_stock.client import HoldDenied, HoldGranted, RedisStock
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.redis_stock.test_scripts import E, ask, opened

EXAMPLES = int(os.environ.get("ONSALE_EXAMPLES", "30"))


async def pick(
    redis_stock: RedisStock, marks: str, width: int, n: int, *, split: bool = False, tidy: bool = True
) -> Any:
    """The positions Redis picks in section A, or its refusal."""
    look = {"quantity": n, "price_blocks": [["A", 0, len(marks) - 1, width]], "split": split, "tidy": tidy}
    wanted = ask("", reservation_id=uuid.uuid4().hex, holder=uuid.uuid4().hex) | {"best": look}
    del wanted["selection"]
    word = (await redis_stock.hold(E, [wanted]))[0]
    if isinstance(word, HoldDenied):
        return word
    return [int(position) for position in word.selection.partition(":")[2].split(",")]


def singles(row: str, at: int, n: int) -> int:
    """Free seats that would stand alone right beside the group."""
    left = at >= 1 and row[at - 1] == "." and (at == 1 or row[at - 2] != ".")
    after = at + n
    right = after < len(row) and row[after] == "." and (after + 1 == len(row) or row[after + 1] != ".")
    return left + right


def by_trying_all(rows: list[str], n: int, *, tidy: bool) -> list[int] | None:
    """The rule in words: the front row that can leave no single seat, else the front row; there fewest singles, then
    nearest to the middle, then leftmost.
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


rows_of_seats = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.text(".hsx", min_size=width, max_size=width), min_size=1, max_size=5)
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_seats, n=st.integers(1, 5), tidy=st.booleans())
def test_redis_picks_what_trying_everything_would(
    rows: list[str], n: int, tidy: bool, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    async def one() -> None:
        async with Redis.from_url(redis_url) as redis:
            redis_stock = await opened(redis, a="|".join(rows))
            picked = await pick(redis_stock, "|".join(rows), len(rows[0]) + 1, n, tidy=tidy)
            wanted = by_trying_all(rows, n, tidy=tidy)
            if wanted is not None:
                assert picked == wanted
            else:
                enough = sum(row.count(".") for row in rows) >= n
                assert picked.outcome == ("no-adjacent-seats" if enough else "sold-out")

    loop_runner.run(one())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_seats, n=st.integers(1, 8))
def test_in_groups_it_never_fails_while_there_is_enough(
    rows: list[str], n: int, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    marks = "|".join(rows)

    async def one() -> None:
        async with Redis.from_url(redis_url) as redis:
            picked = await pick(await opened(redis, a=marks), marks, len(rows[0]) + 1, n, split=True)
            if marks.count(".") < n:
                assert picked.outcome == "sold-out"
                return
            assert len(set(picked)) == n
            assert all(marks[position] == "." for position in picked)
            groups = 1 + sum(1 for one, other in itertools.pairwise(picked) if other != one + 1)
            longest = sorted((len(run) for row in rows for run in row.replace("h", " ").replace("s", " ")
                              .replace("x", " ").split()), reverse=True)  # fmt: skip
            needed = next(k for k in range(1, len(longest) + 1) if sum(longest[:k]) >= n)
            assert groups == needed

    loop_runner.run(one())


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    with asyncio.Runner() as runner:
        yield runner


async def test_anywhere_means_the_dearest_zone_under_the_price(inventory: Inventory) -> None:
    async def best(holder: str, **want: Any) -> Any:
        return (await inventory.reserve(holder, best_available={"quantity": 2, **want})).json()

    assert (await best("rich"))["seats"] == ["A-1-1", "A-1-2"]
    assert (await best("careful", max_price_minor=4500))["seats"] == ["B-1-1", "B-1-2"]
    floor = await best("poor", max_price_minor=3500)
    assert (floor["ga_section"], floor["ga_quantity"], floor["seats"]) == ("GA1", 2, [])
    assert floor["total_amount_minor_units"] == 6200
    nothing = await best("dreamer", max_price_minor=100)
    assert (nothing["type"], nothing["status"]) == ("/problems/sold-out", 409)
    assert (await best("lost", section_id="Z"))["type"] == "/problems/unknown-section"


async def test_fewer_together_are_told_and_taken_in_groups_if_the_fan_likes(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["B-1-2", "B-2-2"])
    ask_for = {"quantity": 3, "section_id": "B"}
    refused = (await inventory.reserve("three", best_available=ask_for)).json()
    assert (refused["type"], refused["together"]) == ("/problems/no-adjacent-seats", 2)
    groups = (await inventory.reserve("three", best_available=ask_for | {"split": True})).json()
    assert groups["seats"] == ["B-1-1", "B-1-3", "B-1-4"]


async def test_the_last_booking_is_never_turned_away_for_tidiness(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["B-1-1", "B-2-1"])
    for holder in ("two", "three"):
        assert (
            len((await inventory.reserve(holder, best_available={"quantity": 2, "section_id": "B"})).json()["seats"])
            == 2
        )
    assert await inventory.broken() == []


async def test_a_repeat_gets_the_same_places(inventory: Inventory) -> None:
    want = {"quantity": 2}
    first = (await inventory.reserve("fan", best_available=want)).json()
    again = (await inventory.reserve("fan", best_available=want)).json()
    assert (again["reservation_id"], again["seats"]) == (first["reservation_id"], first["seats"])
    named = [await inventory.reserve("other", key="k1", best_available=want) for _ in range(2)]
    assert named[0].json() == named[1].json()
    other = await inventory.reserve("other", key="k1", best_available={"quantity": 3})
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


async def test_a_crowd_that_takes_what_there_is_gets_every_seat_once(inventory: Inventory) -> None:
    answers = await asyncio.gather(
        *(inventory.reserve(f"fan-{i}", best_available={"quantity": 1 + i % 3, "split": True}) for i in range(60))
    )
    seats = [seat for answer in answers if answer.status_code == 201 for seat in answer.json()["seats"]]
    assert len(seats) == len(set(seats)) == 23  # every seat of A and B
    assert await inventory.broken() == []


async def test_it_stands_alone_and_within_the_limits(inventory: Inventory) -> None:
    both = await inventory.reserve("fan", seats=["A-1-1"], best_available={"quantity": 1})
    assert both.json()["type"] == "/problems/invalid-request"
    many = await inventory.reserve("fan", best_available={"quantity": 7})
    assert (many.json()["type"], many.json()["limit"]) == ("/problems/limit-exceeded", "tickets_per_order")


async def test_rows_have_prices_of_their_own(inventory: Inventory) -> None:
    file = event_file()
    levels = [{"name": "Front", "rows": [1, 1], "price_minor": 9000, "fee_minor": 500}]
    file["sections"][0]["price_levels"] = levels
    assert (await inventory.put(file)).json()["changed"] is True
    assert (await inventory.put(file)).json()["changed"] is False
    section = (await inventory.fans.get(f"/events/{EVENT}")).json()["sections"][0]
    assert section["price_levels"] == [{"name": "Front", "rows": [1, 1], "price_minor": 9500}]
    assert section["price_minor"] == 5250
    bought = (await inventory.reserve("fan", seats=["A-1-5", "A-2-5"])).json()
    assert bought["total_amount_minor_units"] == 9500 + 5250
    cheap = await inventory.reserve("other", best_available={"quantity": 2, "section_id": "A", "max_price_minor": 6000})
    assert cheap.json()["seats"] == ["A-2-3", "A-2-4"]
    file["sections"][0]["price_levels"] = [{**levels[0], "price_minor": 1}]
    await inventory.put(file)
    kept = (await inventory.mine("GET", bought["reservation_id"])).json()
    assert kept["total_amount_minor_units"] == 9500 + 5250


@pytest.mark.parametrize("rows", [[[0, 1]], [[2, 1]], [[3, 4]], [[1, 2], [2, 3]]])
async def test_price_levels_that_make_no_sense_are_refused(inventory: Inventory, rows: list[list[int]]) -> None:
    file = event_file()
    file["sections"][0]["price_levels"] = [{"name": "Odd", "rows": r, "price_minor": 1} for r in rows]
    refused = await inventory.put(file)
    assert refused.status_code == 422


async def test_redis_answers_with_the_basket_it_holds(redis: Redis) -> None:
    redis_stock = await opened(redis)
    word = (await redis_stock.hold(E, [ask("A:1,2")]))[0]
    assert isinstance(word, HoldGranted)
    assert word.selection == "A:1,2"


async def test_where_it_looks_is_worked_out_once(still: Inventory) -> None:
    """Each zone of a hall of 500 sections anew took 60 ms of every request."""
    layout = still.state.catalogue.layout(EVENT)
    first, again = (layout.price_blocks(section_id=None, max_price_minor=None) for _ in range(2))
    assert len(first) > 1
    assert all(zone is same for zone, same in zip(first, again, strict=True))
