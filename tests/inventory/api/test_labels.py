"""A seat is called by what stands on its row and chair: in its id, in every answer, and by operators and files."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from onsale.strict_yaml import read_yaml
from services.inventory.catalogue.read_event_file import read_event_file
from shared.contracts.event_file import SeatedSection
from tests.inventory.actions import rebuild, sell
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer, problem

ROWS = ["A", {"row": "B", "seats": "even from the right"}, "AA"]
FRONT = {"name": "Front", "rows": ["A", "B"], "price_minor": 9000}


def labelled(**changes: Any) -> dict[str, Any]:
    """The small venue, section A with labels: odd from the left in rows A and AA, even from the right in B."""
    file = event_file()
    file["sections"][0] |= {"rows": ROWS, "seats_per_row": 5, "seats": "odd", "price_levels": [FRONT]} | changes
    return file


async def put(inventory: Inventory, file: dict[str, Any]) -> bool:
    """Whether it changed anything."""
    answer = await inventory.put(file)
    assert answer.is_success, answer.text
    await inventory.until_ready()
    return bool(answer.json()["changed"])


async def seats_of(inventory: Inventory) -> list[dict[str, Any]]:
    page = await inventory.fans.get(f"/events/{EVENT}/sections/A/seats", headers=bearer(make_pass("reader")))
    return list(page.json()["seats"])


async def test_fans_see_and_hold_seats_by_their_labels(inventory: Inventory) -> None:
    await put(inventory, labelled())
    seats = await seats_of(inventory)
    assert [seat["seat_id"] for seat in seats[:7]] == ["A-A-1", "A-A-3", "A-A-5", "A-A-7", "A-A-9", "A-B-10", "A-B-8"]
    assert [seats[5][name] for name in ("row", "label", "number", "price_minor")] == ["B", "10", 1, 9000]
    assert seats[-1]["seat_id"] == "A-AA-9"
    held = (await inventory.reserve("fan", seats=["A-B-10", "A-AA-9"])).json()
    assert held["seats"] == ["A-B-10", "A-AA-9"]
    taken = await inventory.reserve("other", seats=["A-B-10"])
    assert (problem(taken), taken.json()["seats"]) == ((409, "seats-taken"), ["A-B-10"])
    unknown = await inventory.reserve("other", seats=["A-2-1"])
    assert (unknown.status_code, "There is no seat A-2-1" in unknown.text) == (404, True)
    best = (await inventory.reserve("other", best_available={"quantity": 2, "section_id": "A"})).json()
    assert best["seats"] == ["A-A-1", "A-A-3"]
    kept = await inventory.fan_request("GET", held["reservation_id"])
    assert kept.json()["seats"] == held["seats"], "as it is read from the database"
    assert await inventory.violations() == []


async def test_the_map_names_rows_and_seats(inventory: Inventory) -> None:
    await put(inventory, labelled())
    a, b, _ = (await inventory.fans.get(f"/events/{EVENT}/map")).json()["sections"]
    assert a["rows"]["labels"] == {
        "rows": ["A", "B", "AA"], "of_rows": [0, 1, 0],
        "seats": [["1", "3", "5", "7", "9"], ["10", "8", "6", "4", "2"]],
    }  # fmt: skip
    assert b["rows"]["labels"] is None


async def test_operators_name_rows_and_seats_by_their_labels(inventory: Inventory) -> None:
    await put(inventory, labelled())
    done = await inventory.operate(
        "POST", "/seats/block", seats=["A-B-10"], rows=[{"section_id": "A", "rows": ["AA", "AA"]}], ga=[], reason="x"
    )
    assert (done.status_code, done.json()["seats"]) == (200, 6)
    sold = await sell(inventory, "one", seats=["A-A-9"])
    rows = list(csv.DictReader(io.StringIO((await inventory.operate("GET", "/seats.csv")).text.lstrip("\ufeff"))))
    states = {row["seat_id"]: (row["row"], row["number"], row["status"]) for row in rows if row["section_id"] == "A"}
    assert (states["A-B-10"], states["A-A-9"]) == (("B", "10", "blocked"), ("A", "9", "sold"))
    sales = list(csv.DictReader(io.StringIO((await inventory.operate("GET", "/sales.csv")).text.lstrip("\ufeff"))))
    assert [(row["reservation_id"], row["seat_id"]) for row in sales] == [(sold, "A-A-9")]
    for rows_named, status in ((["B", "C"], 404), (["AA", "A"], 409)):
        places = {"seats": [], "rows": [{"section_id": "A", "rows": rows_named}], "ga": []}
        refused = await inventory.operate("POST", "/seats/block", **places, reason="x")
        assert refused.status_code == status, refused.text


async def test_labels_change_until_a_seat_is_taken(inventory: Inventory) -> None:
    assert await put(inventory, labelled())
    assert await put(inventory, labelled(seats="odd from 1")) is True, "the file says it otherwise"
    await inventory.hold("fan", seats=["A-AA-9"])
    assert await put(inventory, labelled(seats="odd from the left")) is True, "the seats are called the same"
    refused = await inventory.put(labelled(seats="consecutive"))
    assert (problem(refused), "A-AA-9" in refused.text) == ((409, "stock-conflict"), True)
    assert await put(inventory, labelled(rows=[*ROWS, "BB"])), "a row behind the others takes no seat"
    assert (await seats_of(inventory))[-1]["seat_id"] == "A-BB-9"
    await rebuild(inventory)
    assert [seat["seat_id"] for seat in await seats_of(inventory) if seat["status"] == "reserved"] == ["A-AA-9"]
    assert await put(inventory, labelled()), "and can go again"
    assert await inventory.violations() == []


async def test_a_file_with_labels_is_read_back_as_it_was(inventory: Inventory) -> None:
    await put(inventory, labelled())
    stored = await read_event_file(inventory.state.db, EVENT)
    section = stored.model_dump(mode="json")["sections"][0]
    assert (section["rows"], section["seats"], section["price_levels"][0]["rows"]) == (ROWS, "odd", ["A", "B"])
    again = {**event_file(), "sections": stored.model_dump(mode="json", exclude_none=True)["sections"]}
    assert await put(inventory, again) is False
    allotted = {"allotment_id": "x", "name": "x", "kind": "house", "rows": [{"section_id": "A", "rows": ["AA", "AA"]}]}
    assert await put(inventory, labelled() | {"allotments": [allotted]})
    assert [seat["status"] for seat in await seats_of(inventory)].count("blocked") == 5


def test_the_guide_has_labels_as_it_says() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "use" / "hall.md").read_text()
    sections = read_yaml(re.findall(r"```yaml\n(.*?)```", guide, re.S)[0]).value["sections"]
    stalls, box = (SeatedSection.model_validate(section) for section in sections)
    expected = " ".join(stalls.labels.front(1)[0][1])
    assert expected in guide
    assert stalls.labels.front(3)[2] == ("C", ("101", "102", "103", "104", "105", "106"))
    assert box.labels.front(1) == [("1", ("1", "2", "5", "6"))]
    assert "STALLS-C-103" in guide


SAME_NAME = "are both called 'Stalls' and have a seat 3 in row B"


@pytest.mark.parametrize(("seats", "refusal"), [("odd", SAME_NAME), ("even", None)])
async def test_no_two_tickets_name_the_same_chair(inventory: Inventory, seats: str, refusal: str | None) -> None:
    file = labelled(name="Stalls", rows=["A", "B"], seats=seats, price_levels=[])
    file["sections"][1] |= {"name": "Stalls", "rows": ["B", "C"], "seats_per_row": 3, "seats": [3, 13, 15]}
    answer = await inventory.put(file)
    assert (refusal in answer.text) if refusal else answer.is_success
