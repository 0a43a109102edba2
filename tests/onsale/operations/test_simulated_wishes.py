"""The price types that simulated fans want keep the event's rules, and what was refused is not wanted again."""

import random
from collections import Counter
from typing import Any

import pytest

from onsale.client import Problem
from onsale.simulate.price_types import TypeChoices

TYPES: list[dict[str, Any]] = [
    {"type_id": "adult", "name": "Adult"},
    {"type_id": "child", "name": "Child", "per_order": 2},
    {"type_id": "member", "name": "Member", "code_required": True},
    {"type_id": "early", "name": "Early fan", "lanes": [2]},
    {"type_id": "chair", "name": "Wheelchair", "traits": ["wheelchair"]},
    {"type_id": "carer", "name": "Companion", "companion_of": ["chair"]},
    {"type_id": "teacher", "name": "Teacher", "companion_of": ["adult"], "sections": ["A"]},
]
EVERYWHERE = {"child": 1, "member": 1, "early": 1, "carer": 0}
SECTIONS = [{"section_id": "A", "prices": {**EVERYWHERE, "teacher": 1}}, {"section_id": "GA", "prices": EVERYWHERE}]
WITH_TYPES: Any = {"price_types": TYPES, "sections": SECTIONS}
WITHOUT: Any = {"price_types": [], "sections": [{"section_id": "GA", "prices": {}}]}
SEAT, PLATFORM = {*EVERYWHERE, "teacher"}, {*EVERYWHERE, "chair"}


def wishes(seed: int = 1, *, lane: int = 0, code: str | None = None, event: Any = WITH_TYPES) -> TypeChoices:
    return TypeChoices(event, lane=lane, code=code, rng=random.Random(seed))


def refused(**members: Any) -> Problem:
    return Problem(409, members)


@pytest.mark.parametrize(("lane", "code", "more"), [(0, None, set()), (2, None, {"early"}), (0, "X", {"member"})])
def test_a_crowd_wants_every_type_that_its_fans_may_buy_and_no_other(
    lane: int, code: str | None, more: set[str]
) -> None:
    wanted = Counter[str | None]()
    for seed in range(300):
        wanted.update(wishes(seed, lane=lane, code=code).choose([SEAT, SEAT, PLATFORM, PLATFORM]))
    assert set(wanted) == {None, "child", "chair", "carer", "teacher"} | more
    assert wanted[None] > wanted["child"]


def test_no_choice_breaks_a_rule_of_its_types() -> None:
    for seed in range(500):
        chosen = Counter(wishes(seed).choose([SEAT, SEAT, PLATFORM, SEAT, PLATFORM, PLATFORM]))
        assert chosen["child"] <= 2
        assert chosen["carer"] <= chosen["chair"]
        assert chosen["teacher"] <= chosen[None], "the usual type has no name"


def test_best_places_are_asked_for_with_types_that_are_sold_at_all_of_them() -> None:
    anywhere, in_a = Counter[str](), Counter[str]()
    for seed in range(300):
        anywhere.update(wishes(seed).unseen(None, 4))
        in_a.update(wishes(seed).unseen("A", 4))
    assert (set(anywhere), set(in_a)) == ({"child"}, {"child", "teacher"})
    assert {tuple(wishes(seed).accessible()) for seed in range(50)} == {("chair",), ("chair", "carer")}


@pytest.mark.parametrize(
    "problem", [refused(type_id="child", reason="lane"), refused(available={"~child": 0, "GA": 4})]
)
def test_what_was_refused_or_is_sold_out_is_not_wanted_again(problem: Problem) -> None:
    wanted, once = wishes(), wishes()
    wanted.heed(problem)
    once.see([{"type_id": "child", "available": 0}])
    for one in (wanted, once):
        assert "child" not in {each for _ in range(100) for each in one.choose([SEAT] * 4)}


def test_without_price_types_places_are_wanted_as_they_are_and_nothing_is_drawn() -> None:
    rng = random.Random(1)
    before, one = rng.getstate(), TypeChoices(WITHOUT, lane=0, code=None, rng=rng)
    assert one.of_ga("GA", 3) == [{"section_id": "GA", "quantity": 3}]
    assert (one.choose([(), ()]), one.any, rng.getstate()) == ([None, None], False, before)
