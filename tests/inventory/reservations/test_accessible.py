"""Wheelchair places with companions next to them: as an exhaustive search finds them, and at the prices of each."""

import asyncio
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from services.inventory.redis_stock.client import HoldDenied
from tests.inventory.conftest import Inventory, event_file
from tests.inventory.redis_stock.test_scripts import EVENT as SCRIPT_EVENT
from tests.inventory.redis_stock.test_scripts import hold_arguments, open_stock
from tests.inventory.reservations.test_price_types import priced_file, prices, require_sound

EXAMPLES = int(os.environ.get("ONSALE_EXAMPLES", "30"))
Wanted = tuple[int, int, int, bool]  # wheelchairs, companions, others; whether companions need companion places


def runs(rows: Sequence[str], kinds: str) -> str:
    return ",".join(f"{at}-{at}" for at, kind in enumerate("|".join(rows)) if kind in kinds)


async def pick(redis_url: str, rows: Sequence[str], wanted: Wanted) -> Any:
    """The positions that Redis picks in section A with these rows, or its denial. Capitals are taken."""
    n, m, others, strict = wanted
    marks = "|".join(rows)
    traits = {"wheelchair_places": {"A": runs(rows, "wW")}, "companion_places": {"A": runs(rows, "cC")}}
    accessible = {"wheelchair": n, "companions": m, "strict": strict, **traits}
    best = {
        "quantity": n + m + others, "price_blocks": [["A", 0, len(marks) - 1, len(rows[0]) + 1]], "split": False,
        "tidy": True, "avoid": [{}], "types": "", "accessible": accessible,
    }  # fmt: skip
    arguments = hold_arguments("", reservation_id=uuid.uuid4().hex, holder=uuid.uuid4().hex) | {"best": best}
    del arguments["selection"]
    free = "".join("|" if kind == "|" else "." if kind in "wc." else "h" for kind in marks)
    async with Redis.from_url(redis_url) as redis:
        outcome = (await (await open_stock(redis, a=free)).hold(SCRIPT_EVENT, [arguments]))[0]
    if isinstance(outcome, HoldDenied):
        return outcome
    return [int(position) for position in outcome.selection.partition(":")[2].split(",")]


def neighbours(marks: str, at: int) -> Iterator[int]:
    """The places next to a wheelchair place where a companion may sit: companion places, if there are any."""
    around = [n for n in (at - 1, at + 1) if 0 <= n < len(marks)]
    own = [n for n in around if marks[n] in "cC"]
    return iter([n for n in own or around if marks[n] in "c."])


def most_pairs(marks: str, wheelchairs: Sequence[int], seats: frozenset[int], kinds: str) -> int:
    """How many of the wheelchair places have one of the seats next to them, each a seat of its own."""
    if not wheelchairs:
        return 0
    first, rest = wheelchairs[0], wheelchairs[1:]
    own = (n for n in neighbours(marks, first) if n in seats and marks[n] in kinds)
    return max([most_pairs(marks, rest, seats, kinds), *(1 + most_pairs(marks, rest, seats - {n}, kinds) for n in own)])


def is_right(marks: str, chosen: Iterable[int], wanted: Wanted, *, proper: bool) -> bool:
    """Whether these places are what is wanted; with `proper` whoever sits next to a wheelchair sits in its place."""
    n, m, others, strict = wanted
    by_kind = {kind: [at for at in chosen if marks[at] == kind] for kind in "wc."}
    if len(by_kind["w"]) != n or len(by_kind["."]) < others or (strict and len(by_kind["c"]) != m):
        return False
    seats = frozenset(by_kind["c"] + by_kind["."])
    pairs, need = most_pairs(marks, by_kind["w"], seats, "c" if proper else "c."), min(n, m)
    if pairs < need:
        return False
    in_place = most_pairs(marks, by_kind["w"], frozenset(by_kind["c"]), "c")
    ordinary = max(0, need - in_place)  # these are no places for others
    return len(by_kind["."]) >= others + ordinary


def exhaustive_search(rows: Sequence[str], wanted: Wanted) -> tuple[bool, bool, int, int, int] | None:
    """What is best: one row before more, companion places next to wheelchairs before others, the fewest rows, the first
    of them, and in one row the fewest seats from end to end.
    """
    marks, width, found = "|".join(rows), len(rows[0]) + 1, list[tuple[bool, bool, int, int, int]]()
    free = [at for at, kind in enumerate(marks) if kind in "wc."]
    for chosen in itertools.combinations(free, sum(wanted[:3])):
        for proper in (True, False):
            if is_right(marks, chosen, wanted, proper=proper):
                found.append(measure(chosen, width, proper=proper))
                break
    return min(found, default=None)


def measure(chosen: Sequence[int], width: int, *, proper: bool) -> tuple[bool, bool, int, int, int]:
    first, last = chosen[0] // width, chosen[-1] // width
    span = chosen[-1] - chosen[0] if first == last else 0
    return (first != last, not proper, last - first, first, span)


every_example = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
rows_of_places = st.integers(2, 6).flatmap(
    lambda width: st.lists(st.text("wwwcc..WCx", min_size=width, max_size=width), min_size=1, max_size=3)
)
parties = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 1), st.booleans())


@every_example
@example(rows=["wcw"], wanted=(2, 2, 0, False))
@example(rows=["wcw", "wc."], wanted=(2, 2, 0, False))
@example(rows=["w...ww"], wanted=(2, 0, 0, False))
@example(rows=[".w.", "wc."], wanted=(1, 1, 0, False))
@given(rows=rows_of_places, wanted=parties)
def test_redis_picks_places_as_good_as_an_exhaustive_search(
    rows: list[str], wanted: Wanted, loop_runner: asyncio.Runner, redis_url: str
) -> None:
    picked, expected = loop_runner.run(pick(redis_url, rows, wanted)), exhaustive_search(rows, wanted)
    marks = "|".join(rows)
    if expected is None:
        assert (picked.outcome, picked.detail) == ("no-accessible-places", f"{marks.count('w')},{marks.count('c')}")
        return
    assert picked == sorted(set(picked))
    proper = is_right(marks, picked, wanted, proper=True)
    assert proper or is_right(marks, picked, wanted, proper=False)
    assert measure(picked, len(rows[0]) + 1, proper=proper) == expected


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    with asyncio.Runner() as runner:
        yield runner


# -- requests of fans --------------------------------------------------------------------------------------------------


async def ask(inventory: Inventory, quantity: int, holder: str | None = None, **more: Any) -> Any:
    """The answer to a fan who has nothing yet, or to this one."""
    return await inventory.reserve(holder or uuid.uuid4().hex, best_available={"quantity": quantity, **more})


@pytest.fixture
async def hall(inventory: Inventory) -> Inventory:
    """Section A with wheelchair places 3-1 and 3-4, each with a companion place; B without; see `priced_file`."""
    assert (await inventory.put(priced_file())).status_code == 200
    return inventory


async def test_a_wheelchair_user_and_a_companion_are_held_together_each_at_their_price(hall: Inventory) -> None:
    first = await ask(hall, 2, wheelchair=1, companions=1, types={"chair": 1, "carer": 1})
    assert first.status_code == 201, first.text
    assert prices(first) == [("A-3-1", "chair", 1, 2750), ("A-3-2", "carer", 1, 0)]
    usual = await ask(hall, 2, wheelchair=1, companions=1)
    assert prices(usual) == [("A-3-4", "adult", 1, 5250), ("A-3-5", "adult", 1, 5250)]
    none = await ask(hall, 1, wheelchair=1)
    assert none.json()["type"] == "/problems/no-accessible-places"
    assert (none.json()["wheelchair"], none.json()["companions"]) == (0, 0)
    assert none.json()["detail"].endswith("Left are no wheelchair places and no companion places.")
    await require_sound(hall)


async def test_friends_sit_near_and_pay_their_own_prices(hall: Inventory) -> None:
    party = await ask(hall, 3, wheelchair=1, companions=1, types={"carer": 1, "chair": 1, "child": 1})
    assert prices(party) == [("A-3-1", "chair", 1, 2750), ("A-3-2", "carer", 1, 0), ("A-3-3", "child", 1, 2500)]
    await require_sound(hall)


async def test_a_refusal_says_how_many_are_left_of_each(hall: Inventory) -> None:
    assert (await hall.reserve("other", seats=["A-3-2"])).status_code == 201
    none = await ask(hall, 4, wheelchair=2, companions=2)
    assert none.status_code == 409
    assert (none.json()["wheelchair"], none.json()["companions"]) == (2, 1)
    assert none.json()["detail"].endswith("Left are 2 wheelchair places and 1 companion place.")
    elsewhere = await ask(hall, 1, wheelchair=1, section_id="B")
    assert (elsewhere.json()["type"], elsewhere.json()["wheelchair"]) == ("/problems/no-accessible-places", 0)
    cheap = await ask(hall, 1, wheelchair=1, max_price_minor=100)
    assert cheap.json()["type"] == "/problems/sold-out"


async def test_a_companion_type_that_needs_a_companion_place_gets_one(hall: Inventory) -> None:
    """3-2 is taken, so only 3-4 has its companion place."""
    assert (await hall.reserve("other", seats=["A-3-2"])).status_code == 201
    both = await ask(hall, 2, wheelchair=1, companions=1, types={"carer": 1, "chair": 1})
    assert prices(both) == [("A-3-4", "chair", 1, 2750), ("A-3-5", "carer", 1, 0)]
    alone = await ask(hall, 2, wheelchair=1, companions=1, types={"carer": 1, "chair": 1})
    assert (alone.json()["wheelchair"], alone.json()["companions"]) == (1, 0)


async def test_where_there_is_no_companion_place_the_companion_sits_next_to_it(inventory: Inventory) -> None:
    file = event_file()
    file["sections"][1]["traits"] = {"wheelchair": ["2-2"]}
    await inventory.put(file)
    answer = await ask(inventory, 3, wheelchair=1, companions=2)
    assert answer.json()["seats"] == ["B-2-1", "B-2-2", "B-2-3"]
    assert await inventory.violations() == []


@pytest.mark.parametrize("traits", [["wheelchair"], ["wheelchair", "companion"], ["companion"], []])
async def test_a_section_without_seats_gives_places_if_it_is_for_wheelchairs(
    inventory: Inventory, traits: list[str]
) -> None:
    file = event_file()
    file["sections"][2] |= {"traits": traits, "capacity": 3}
    await inventory.put(file)
    answer = await ask(inventory, 2, wheelchair=1, companions=1)
    if "wheelchair" not in traits:
        assert answer.json()["type"] == "/problems/no-accessible-places"
        return
    assert (answer.json()["ga_section"], answer.json()["ga_quantity"]) == ("GA1", 2)
    assert (await ask(inventory, 2, wheelchair=1, companions=1)).json()["wheelchair"] == 1
    assert await inventory.violations() == []


async def test_types_that_fit_no_such_places_are_refused_and_nothing_is_held(hall: Inventory) -> None:
    two = await ask(hall, 2, wheelchair=1, companions=1, types={"chair": 2})
    assert (two.json()["type"], two.json()["reason"]) == ("/problems/price-type-refused", "place")
    alone = await ask(hall, 2, wheelchair=1, companions=1, types={"carer": 1})
    assert alone.json()["reason"] == "companion"
    again = await ask(hall, 2, wheelchair=1, companions=1)
    assert again.json()["seats"] == ["A-3-1", "A-3-2"]


@pytest.mark.parametrize("more", [
    {"wheelchair": 2, "companions": 1}, {"companions": 1}, {"wheelchair": -1}, {"wheelchair": 101}, {"wheelchair": "x"},
    {"wheelchair": 1, "companions": 101},
])  # fmt: skip
async def test_numbers_that_do_not_go_together_are_refused(hall: Inventory, more: dict[str, Any]) -> None:
    assert (await ask(hall, 2, **more)).status_code == 422


async def test_a_repeated_request_gets_the_same_places(hall: Inventory) -> None:
    party: dict[str, Any] = {"wheelchair": 1, "companions": 1, "types": {"chair": 1, "carer": 1}}
    first = await ask(hall, 2, "fan", **party)
    assert (await ask(hall, 2, "fan", **party)).json() == first.json()


async def test_a_crowd_gets_each_place_once(hall: Inventory) -> None:
    answers = await asyncio.gather(*(ask(hall, 2, wheelchair=1, companions=1) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, 201, 409, 409, 409, 409]
    assert sorted(seat for a in answers if a.status_code == 201 for seat in a.json()["seats"]) == [
        "A-3-1", "A-3-2", "A-3-4", "A-3-5",
    ]  # fmt: skip
    await require_sound(hall)
