"""Wheelchair and companion places: released to everybody once, and counted apart."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.inventory.store.traits import COUNT_TRAITS
from shared.contracts.event_file import StockPart
from tests.inventory.actions import audit_log, block, sell, sql
from tests.inventory.conftest import EVENT, OPERATOR_KEY, Inventory, event_file
from tests.support.running.suite import problem


def accessible_file(**sales: Any) -> dict[str, Any]:
    """Two wheelchair places and two companion places in A, a row with a restricted view, a floor for wheelchairs."""
    file = event_file(tickets_per_order=10, tickets_per_customer=0, active_reservations_per_customer=0, **sales)
    a, b, floor = file["sections"]
    traits = {"wheelchair": ["3-1", "3-4"], "companion": ["3-2", "3-5"], "restricted_view": ["1"]}
    floor = {**floor, "traits": ["wheelchair"], "capacity": 6}
    return {**file, "sections": [{**a, "traits": traits}, b, floor]}


async def release(inventory: Inventory, **body: Any) -> Any:
    return await inventory.operate("POST", "/accessible/release", **body)


async def best(inventory: Inventory, quantity: int, section_id: str) -> Any:
    asked = {"quantity": quantity, "section_id": section_id}
    return (await inventory.reserve(uuid.uuid4().hex, best_available=asked)).json()


# -- the release -------------------------------------------------------------------------------------------------------


async def test_released_places_are_offered_to_everybody_after_all_others(inventory: Inventory) -> None:
    await inventory.put(accessible_file())
    await best(inventory, 5, "A")
    await best(inventory, 5, "A")
    assert (await best(inventory, 1, "A"))["seats"] == ["A-3-3"]
    assert (await best(inventory, 1, "A"))["type"] == "/problems/sold-out"
    answer = await release(inventory, reason="two days before the show")
    assert (answer.status_code, answer.json()["changed"]) == (200, True)
    assert sorted((await best(inventory, 2, "A"))["seats"]) in (["A-3-1", "A-3-2"], ["A-3-4", "A-3-5"])
    assert (await best(inventory, 2, "GA1"))["ga_quantity"] == 2
    stock = (await inventory.operate("GET", "/stock")).json()
    assert stock["accessible_released_at"] is not None
    assert await inventory.violations() == []


async def test_a_release_is_made_and_written_once_and_survives_the_event_file(inventory: Inventory) -> None:
    await inventory.put(accessible_file())
    answers = await asyncio.gather(*(release(inventory, reason="the show is near") for _ in range(5)))
    assert sorted(answer.json()["changed"] for answer in answers) == [False] * 4 + [True]
    assert (await inventory.put(accessible_file())).json()["changed"] is False
    layout = inventory.state.catalogue.layout(EVENT)
    assert layout.accessible_are_released
    releases = [entry for entry in await audit_log(inventory) if entry["action"] == "release-accessible"]
    assert [(entry["actor"], entry["reason"]) for entry in releases] == [("tester", "the show is near")]


async def test_a_release_of_nothing_is_refused(inventory: Inventory) -> None:
    answer = await release(inventory)
    assert problem(answer) == (409, "stock-conflict")
    assert answer.json()["detail"] == "This event has no wheelchair or companion places. Nothing was changed."
    await inventory.put(accessible_file())
    assert problem(await release(inventory, version=1)) == (412, "version-mismatch")
    assert problem(await release(inventory, reason="x" * 10_000)) == (422, "invalid-request")
    path = "/admin/inventory/events/none/accessible/release"
    unknown = await inventory.fans.post(path, json={}, headers=OPERATOR_KEY)
    assert problem(unknown) == (404, "unknown-event")
    assert (await inventory.fans.post(path, json={})).status_code == 401
    assert not inventory.state.catalogue.layout(EVENT).accessible_are_released


@pytest.mark.parametrize("at", ["soon", "2027-03-01T10:00:00", True, {"at": 1}])
async def test_a_release_time_that_is_none_is_refused_with_the_file(inventory: Inventory, at: Any) -> None:
    answer = await inventory.put(accessible_file(accessible_release_at=at))
    assert answer.status_code == 422
    assert "accessible_release_at" in answer.text


# -- counted apart -----------------------------------------------------------------------------------------------------


async def test_places_are_counted_by_trait(inventory: Inventory) -> None:
    await inventory.put(accessible_file())
    await sell(inventory, "one", seats=["A-3-1", "A-3-2", "A-2-1"], ga=[{"section_id": "GA1", "quantity": 2}])
    await inventory.hold("two", seats=["A-3-4"], ga_section="GA1", ga_quantity=1)
    await block(inventory, "A-1-1", ga=1)
    stock = (await inventory.operate("GET", "/stock")).json()
    in_a, floor = stock["sections"][0]["traits"], stock["sections"][2]["traits"]
    assert in_a == {
        "wheelchair": {"capacity": 2, "available": 0, "held": 1, "sold": 1},
        "companion": {"capacity": 2, "available": 1, "held": 0, "sold": 1},
        "restricted_view": {"capacity": 5, "available": 4, "held": 0, "sold": 0},
    }
    assert floor == {"wheelchair": {"capacity": 6, "available": 2, "held": 1, "sold": 2}}
    assert stock["sections"][1]["traits"] == {}
    assert stock["traits"]["wheelchair"] == {"capacity": 8, "available": 2, "held": 2, "sold": 3}
    by_trait = (await inventory.operate("GET", "/flow/traits")).json()
    assert by_trait == {"sections": {"A": in_a, "GA1": floor}, "total": stock["traits"]}


async def test_an_event_without_traits_counts_none(inventory: Inventory) -> None:
    stock = (await inventory.operate("GET", "/stock")).json()
    assert (stock["traits"], stock["sections"][0]["traits"]) == ({}, {})
    assert (await inventory.operate("GET", "/flow/traits")).json() == {"sections": {}, "total": {}}


def _examined(node: dict[str, Any]) -> float:
    """How many seats a plan reads."""
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    mine = own * node["Actual Loops"] if node.get("Relation Name") == "seat" else 0
    return float(mine + sum(map(_examined, node.get("Plans", []))))


async def test_a_hall_of_many_places_is_counted_by_its_runs(inventory: Inventory) -> None:
    """50,000 seats, of which every tenth has a restricted view and 500 are for wheelchairs."""
    sections = [
        {"section_id": f"S{n}", "name": f"Block {n}", "kind": "seated", "rows": 25, "seats_per_row": 40,
         "price_minor": 5000, "traits": {"wheelchair": [f"{row}-20" for row in range(1, 11)],
                                         "restricted_view": [f"{row}-1..4" for row in range(1, 26)]}}
        for n in range(50)
    ]  # fmt: skip
    assert (await inventory.put({**event_file(), "sections": sections})).status_code == 200
    ((plan,),) = await sql(inventory, f"EXPLAIN (ANALYZE, FORMAT JSON) {COUNT_TRAITS.text}")
    assert 0 < _examined(plan[0]["Plan"]) <= 2 * 5_500
    total = (await inventory.operate("GET", "/flow/traits")).json()["total"]
    assert (total["wheelchair"]["available"], total["restricted_view"]["available"]) == (500, 5_000)


# -- what doctor says --------------------------------------------------------------------------------------------------

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("release_in_h", "ends_in_h", "found"), [
    (None, 4, []), (1, 4, []), (6, None, ["are released after the show has begun"]),
    (6, 4, ["are released after the show has begun"]), (4, 4, ["are released after the sale has ended"]),
])  # fmt: skip
def test_a_release_that_comes_too_late_is_found(
    release_in_h: int | None, ends_in_h: int | None, found: list[str]
) -> None:
    at, ends_at = (None if h is None else NOW + timedelta(hours=h) for h in (release_in_h, ends_in_h))
    file = StockPart.model_validate(accessible_file(accessible_release_at=at))
    checks = file.findings(sale_ends_at=ends_at, starts_at=NOW + timedelta(hours=5), now=NOW)
    assert [check.found for check in checks] == found


def test_a_release_of_no_places_is_found() -> None:
    file = StockPart.model_validate(event_file(accessible_release_at=NOW))
    checks = file.findings(sale_ends_at=None, starts_at=NOW + timedelta(hours=5), now=NOW)
    assert [check.found for check in checks] == ["are to be released, and no section has any"]
