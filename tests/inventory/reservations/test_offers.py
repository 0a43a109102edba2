"""What best available offers: places with traits late or to nobody, places of others never."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.inventory.layout.layout import Layout
from services.inventory.layout.offers import EVERYTHING, Exclusive, Offers, Places
from services.inventory.layout.price_types import Fan
from tests.inventory.conftest import EVENT, Inventory, event_file

TRAITS = {
    "wheelchair": ["1-1"], "companion": ["1-2"], "restricted_view": ["2"], "easy_access": ["3-1..2", "3-5"],
}  # fmt: skip


def with_traits(floor: Sequence[str] = (), **traits: list[str]) -> dict[str, Any]:
    """Section A with these traits, section B without, and the floor with its own."""
    file = event_file(tickets_per_order=10, tickets_per_customer=0, active_reservations_per_customer=0)
    a, b, ga = file["sections"]
    return {**file, "sections": [{**a, "traits": traits or TRAITS}, b, {**ga, "traits": list(floor)}]}


async def best(inventory: Inventory, quantity: int, **more: Any) -> Any:
    """The answer to a fan who has nothing yet."""
    return (await inventory.reserve(uuid.uuid4().hex, best_available={"quantity": quantity, **more})).json()


async def test_places_with_traits_are_offered_when_no_others_are_left_and_wheelchair_places_to_nobody(
    inventory: Inventory,
) -> None:
    await inventory.put(with_traits())
    assert (await best(inventory, 2, section_id="A"))["seats"] == ["A-3-3", "A-3-4"]
    kept = await best(inventory, 3, section_id="A")
    assert kept["seats"] == ["A-1-3", "A-1-4", "A-1-5"]
    assert (await best(inventory, 5, section_id="A"))["seats"] == [f"A-2-{n}" for n in range(1, 6)]
    assert (await best(inventory, 2, section_id="A"))["seats"] == ["A-3-1", "A-3-2"]
    refused = await best(inventory, 2, section_id="A", split=True)
    assert (refused["type"], refused["available"]) == ("/problems/sold-out", {"A": 1})
    assert (await best(inventory, 1, section_id="A"))["seats"] == ["A-3-5"]
    assert (await best(inventory, 1, section_id="A"))["available"] == {"A": 0}
    by_hand = await inventory.reserve(seats=["A-1-1", "A-1-2"])
    assert by_hand.status_code == 201
    assert await inventory.violations() == []


async def test_dearer_places_with_a_restricted_view_come_after_cheaper_ones_without(inventory: Inventory) -> None:
    await inventory.put(with_traits(restricted_view=["1", "2", "3"]))
    assert (await best(inventory, 4))["seats"] == [f"B-1-{n}" for n in range(1, 5)]
    refused = await best(inventory, 6, section_id="A")
    assert (refused["type"], refused["together"]) == ("/problems/no-adjacent-seats", 5)


@pytest.mark.parametrize(("traits", "offered"), [
    (["wheelchair"], False), (["companion"], False), (["restricted_view"], True), (["easy_access"], True),
    (["easy_access", "wheelchair"], False),
])  # fmt: skip
async def test_a_section_without_seats_is_offered_late_or_never_as_a_whole(
    inventory: Inventory, traits: list[str], offered: bool
) -> None:
    file = with_traits(traits, restricted_view=["1"])
    file["sections"][2]["price_minor"] = 90_000
    await inventory.put(file)
    assert (await best(inventory, 2))["seats"] == ["A-2-1", "A-2-2"]
    alone = await best(inventory, 2, section_id="GA1")
    assert alone.get("ga_quantity", 0) == 2 * offered
    if not offered:
        assert alone["detail"] == "None of these tickets is left in Floor."


async def test_an_event_without_traits_sends_nothing(inventory: Inventory) -> None:
    layout = inventory.state.catalogue.layout(EVENT)
    assert layout.rounds(Fan()) is EVERYTHING


@dataclass
class Kept:
    """Places for who names a code."""

    places: Places
    code: str
    pools: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.code

    def is_open_to(self, fan: Fan) -> bool:
        return fan.code == self.code


def test_places_of_others_are_never_offered_and_what_a_right_sees_is_made_once() -> None:
    kept = [Kept({"A": [(0, 3)], "F": [(0, 0)]}, "club"), Kept({"A": [(6, 9), (4, 4)]}, "press")]
    offers = Offers({"A": {"easy_access": [(9, 11)]}, "B": {}}, kept)
    nobody = offers.rounds(Fan(), released=False)
    assert nobody == [{"A": "0-4,6-11", "F": "0-0"}, {"A": "0-4,6-9", "F": "0-0"}]
    assert offers.rounds(Fan(3, "none"), released=False) is nobody
    assert offers.rounds(Fan(0, "club"), released=False) == [{"A": "4-4,6-11"}, {"A": "4-4,6-9"}]
    assert Offers({}, []).rounds(Fan(), released=False) == [{}]


def test_who_asks_for_wheelchair_places_gets_none_that_only_others_may_buy() -> None:
    offers = Offers({"A": {"wheelchair": [(0, 0)], "easy_access": [(9, 9)]}}, [Kept({"A": [(2, 3)]}, "club")])
    assert offers.accessible(Fan()) == [{"A": "2-3"}]
    assert offers.accessible(Fan(0, "club")) == [{}]
    assert (offers.wheelchair_places, offers.companion_places) == ({"A": "0-0"}, {})


@dataclass
class Keeping:
    """What a feature made of an event, with places that it keeps."""

    exclusive: Sequence[Exclusive]

    def card(self, _: Layout) -> dict[str, Any]:
        return {}

    details = card


async def test_what_a_feature_keeps_is_left_out_of_its_layout(inventory: Inventory) -> None:
    found = inventory.state.catalogue.layout(EVENT)
    layout = replace(found, shown=(*found.shown, Keeping([Kept({"A": [(0, 4)]}, "club")])))
    assert layout.rounds(Fan()) == [{"A": "0-4"}]
    assert layout.rounds(Fan(), "B") == [{}]
    assert layout.rounds(Fan(0, "club"), "A") == [{"A": "5-16"}, {}], "theirs first"
    assert found.rounds(Fan()) is EVERYTHING


@pytest.mark.parametrize(("hours", "offered"), [(-1, True), (1, False)])
async def test_from_the_release_on_they_are_offered_after_all_others(
    inventory: Inventory, hours: int, offered: bool
) -> None:
    file = with_traits()
    file["sales"]["accessible_release_at"] = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
    assert (await inventory.put(file)).status_code == 200
    assert (await inventory.put(file)).json()["changed"] is False
    stored = await inventory.admin("GET", f"/events/{EVENT}")
    assert (await inventory.put(stored)).json()["changed"] is False
    assert (await best(inventory, 2, section_id="A"))["seats"] == ["A-3-3", "A-3-4"]
    await best(inventory, 3, section_id="A")
    await best(inventory, 5, section_id="A")
    left = [(await best(inventory, 1, section_id="A")).get("seats") for _ in range(5)]
    late = ["A-3-1", "A-3-2", "A-3-5"]
    assert sorted(seats[0] for seats in left if seats) == (["A-1-1", "A-1-2", *late] if offered else late)


def test_released_places_are_offered_late() -> None:
    offers = Offers({"A": {"wheelchair": [(0, 0)], "companion": [(1, 1)], "restricted_view": [(5, 9)]}}, [])
    assert offers.rounds(Fan(), released=False) == [{"A": "0-1,5-9"}, {"A": "0-1"}]
    assert offers.rounds(Fan(), released=True) == [{"A": "0-1,5-9"}, {}]
