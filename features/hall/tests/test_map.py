"""The map of a hall: from the event file, checked, changed by applying the file again, or laid out by itself. Then no
two sections overlap, all seats lie in their outline, and it is always the same.
"""

import importlib
import random
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.hall import hall_map
from features.hall.hall_map import Block, Drawn, Hall, Point, Rows, arc, edge_seats, is_inside
from features.hall.rules import HallFields
from shared.contracts.event_file import EventFile
from shared.contracts.file_parts import part_of
from shared.web.app import public
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.support.running.suite import problem

PATH = f"/events/{EVENT}/map"


def drawn(**sections: Any) -> dict[str, Any]:
    """The small venue with a map of its three sections."""
    square = [[100, 200], [400, 200], [400, 500], [100, 500]]
    rows = {"at": [120, 220], "pitch": 14, "spacing": 12, "curve": 0.001, "angle": 5}
    return {
        "size": [1000, 800], "stage": {"at": [500, 60], "size": [600, 80]},
        "sections": {"A": {"outline": square, "rows": rows}, "B": {"outline": square}, "GA1": {"outline": square}}
        | sections,
    }  # fmt: skip


def file_with(hall_map: dict[str, Any] | None) -> dict[str, Any]:
    return event_file() | {"map": hall_map}


async def test_a_map_of_the_event_file_is_served_and_named_by_its_hash(inventory: Inventory) -> None:
    assert (await inventory.put(file_with(drawn()))).json()["changed"] is True
    await inventory.state.redis_monitor.check()
    digest = (await inventory.fans.get(f"/events/{EVENT}")).json()["map_hash"]
    named, unnamed = await inventory.fans.get(PATH, params={"v": digest}), await inventory.fans.get(PATH)
    assert named.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert unnamed.headers["cache-control"] == "public, no-cache"
    geometry = named.json()
    assert geometry == unnamed.json()
    assert (geometry["size"], geometry["stage"]) == ([1000, 800], {"at": [500, 60], "size": [600, 80]})
    a, b, floor = geometry["sections"]
    assert a["rows"] == {
        "at": [120, 220], "pitch": 14, "spacing": 12, "curve": 0.001, "angle": 5, "count": 3, "seats": 5,
            "labels": None, "traits": {},
    }  # fmt: skip
    assert (b["rows"]["count"], b["rows"]["seats"], floor["rows"]) == (2, 4, None), "B fills its outline"
    again = await inventory.fans.get(PATH, headers={"if-none-match": unnamed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_map_has_the_runs_of_each_trait(inventory: Inventory) -> None:
    file = file_with(None)
    stalls = next(section for section in file["sections"] if section["section_id"] == "A")
    stalls["traits"] = {"wheelchair": ["1-2", "1-4..5", "2"], "easy_access": ["1", "2", "3"], "companion": ["1-3"]}
    assert (await inventory.put(file)).is_success
    await inventory.state.catalogue.refresh()
    a, b, _ = (await inventory.fans.get(PATH)).json()["sections"]
    assert a["rows"]["traits"] == {
        "wheelchair": [[1, 1], [3, 9]], "companion": [[2, 2]], "easy_access": [[0, 14]]
    }, "counted through the rows of five seats"  # fmt: skip
    assert b["rows"]["traits"] == {}


async def test_any_outline_is_filled_with_rows(inventory: Inventory) -> None:
    line, wide = [[500, 500], [500, 500], [500, 500]], [[0, 0], [32_000, 0], [32_000, 30_000], [0, 30_000]]
    hall_map = drawn(A={"outline": line}, B={"outline": wide}) | {"size": [32_767, 32_767]}
    assert (await inventory.put(file_with(hall_map))).is_success
    await inventory.state.catalogue.refresh()
    a, b, _ = (await inventory.fans.get(PATH)).json()["sections"]
    assert (a["rows"]["at"], a["rows"]["pitch"], b["rows"]["spacing"]) == ([500, 500], 0.001, 1000)


async def test_applying_the_file_again_changes_the_map_and_nothing_else(inventory: Inventory) -> None:
    held = await inventory.hold()
    assert (await inventory.put(file_with(drawn()))).json()["changed"] is True
    assert (await inventory.put(file_with(drawn()))).json()["changed"] is False
    await inventory.state.redis_monitor.check()
    before, epoch = (await inventory.fans.get(PATH)).json(), inventory.state.catalogue.layout(EVENT).redis_epoch
    moved = drawn(GA1={"outline": [[500, 200], [900, 200], [900, 700]]})
    assert (await inventory.put(file_with(moved))).json()["changed"] is True
    await inventory.state.redis_monitor.check()
    assert (await inventory.fans.get(PATH)).json() != before
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "nobody sells less while a map is drawn"
    assert (await inventory.fan_request("GET", held)).json()["status"] == "pending_payment"
    assert (await inventory.put(event_file())).json()["changed"] is True
    await inventory.state.redis_monitor.check()
    assert len((await inventory.fans.get(PATH)).json()["sections"]) == 3, "laid out by itself"


async def test_an_event_without_a_map_is_laid_out_by_itself(inventory: Inventory) -> None:
    sections = (await inventory.fans.get(PATH)).json()["sections"]
    assert [section["section_id"] for section in sections] == ["A", "B", "GA1"]
    assert [s["rows"] and (s["rows"]["count"], s["rows"]["seats"]) for s in sections] == [(3, 5), (2, 4), None]
    assert problem(await inventory.fans.get("/events/nowhere/map")) == (404, "unknown-event")


@pytest.mark.parametrize(
    ("hall_map", "says"),
    [
        (drawn(C={"outline": [[0, 0], [1, 0], [1, 1]]}), "map.sections: the event has no section C"),
        ({**drawn(), "sections": {}}, "map.sections: A, B, GA1 has no outline"),
        (drawn(A={"outline": [[0, 0], [1, 0]]}), "at least 3"),
        (drawn(A={"outline": [[0, 0], [40_000, 0], [0, 1]]}), "32767"),
        (drawn(A={"outline": [[0, 0], [1001, 0], [0, 1]]}), "map.sections.A: (1001, 0) lies outside of the map"),
        (drawn(GA1=drawn()["sections"]["A"]), "map.sections.GA1: general admission has no rows"),
        (drawn(A=drawn()["sections"]["A"] | {"rows": {"at": [990, 10], "pitch": 14, "spacing": 12}}), "(1002, 10)"),
        (drawn(A=drawn()["sections"]["A"] | {"rows": {"at": [9, 9], "pitch": 9, "spacing": 0}}), "0.001"),
    ],
)  # fmt: skip
async def test_a_map_that_does_not_fit_is_refused_and_says_why(
    inventory: Inventory, hall_map: dict[str, Any], says: str
) -> None:
    refused = await inventory.put(file_with(hall_map))
    assert problem(refused) == (422, "invalid-request")
    assert says in refused.text


async def test_a_map_has_at_most_a_hundred_thousand_numbered_seats(inventory: Inventory) -> None:
    file = file_with(drawn())
    file["sections"][0] |= {"rows": 1000, "seats_per_row": 100}
    assert "at most 100000 numbered seats, not 100008" in (await inventory.put(file)).text


def test_the_map_of_the_guide_fits_and_its_seats_lie_inside() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "use" / "hall.md").read_text()
    [example] = re.findall(r"```yaml\n(map:.*?)```", guide, re.S)
    a, _, floor = event_file()["sections"]
    sections = [a | {"rows": 20, "seats_per_row": 25}, floor]
    event = EventFile.model_validate({**event_file(), "sections": sections, **yaml.safe_load(example)})
    drawn_map = part_of(event, HallFields).map
    assert drawn_map is not None
    outline, rows = drawn_map.sections["A"].drawn()
    assert rows is not None
    assert all(is_inside(outline, seat) for seat in edge_seats(rows, 20, 25))


async def test_an_event_with_more_seats_than_a_map_shows_has_none(inventory: Inventory) -> None:
    file = event_file()
    file["sections"][0] |= {"rows": 1000, "seats_per_row": 100}
    assert (await inventory.put(file)).is_success
    await inventory.state.catalogue.refresh()
    assert (await inventory.fans.get(f"/events/{EVENT}")).json()["map_hash"] is None
    assert problem(await inventory.fans.get(PATH)) == (404, "no-map")


@pytest.mark.parametrize("service", ["queue", "inventory", "orders"])
def test_each_service_takes_the_largest_hall(service: str) -> None:
    sections = [
        {"section_id": f"BLOCK{n}", "name": f"Block number {n}", "kind": "seated", "rows": 10, "seats_per_row": 20,
         "price_minor": 5000, "fee_minor": 250}
        for n in range(500)
    ]  # fmt: skip
    shapes = {section["section_id"]: drawn()["sections"]["A"] for section in sections}
    file = EventFile.model_validate({**event_file(), "sections": sections, "map": drawn() | {"sections": shapes}})
    listener = public(importlib.import_module(f"services.{service}.app").create_app())
    assert len(file.model_dump_json()) < listener._body_max_bytes


async def test_a_map_has_at_most_five_hundred_sections(inventory: Inventory) -> None:
    outline = {"outline": [[0, 0], [1, 0], [1, 1]]}
    refused = await inventory.put(file_with(drawn(**{f"S{n}": outline for n in range(498)})))
    assert problem(refused) == (422, "invalid-request")
    assert "at most 500" in refused.text


SHAPES = st.one_of(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.just(0)),
    st.tuples(st.sampled_from([1, 1000]), st.sampled_from([1, 2]), st.just(0)),
    st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 1000]), st.just(0)),
    st.tuples(st.just(0), st.just(0), st.integers(0, 1_000_000)),
)
HALLS = st.lists(SHAPES, min_size=1, max_size=30)
SQUARE = ((0, 0), (300, 0), (300, 200), (0, 200))


def blocks(shapes: list[tuple[int, int, int]]) -> list[Block]:
    return [Block(f"S{n}", rows, seats, rows * seats or places) for n, (rows, seats, places) in enumerate(shapes)]


def all_seats(block: Block, section: Drawn) -> list[Point]:
    if section.rows is None:
        return []
    if block.capacity > 10_000:
        return hall_map.edge_seats(section.rows, block.rows, block.seats_per_row)
    rows = (hall_map.row_of_seats(section.rows, row, block.seats_per_row) for row in range(block.rows))
    return [point for row in rows for point in row]


def apart(one: Drawn, other: Drawn) -> bool:
    """Whether a side of one of two convex outlines separates them."""
    for outline in (one.outline, other.outline):
        for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
            first, second = (
                [(x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) for x, y in each.outline] for each in (one, other)
            )
            if max(first) < min(second) or max(second) < min(first):
                return True
    return False


def check(shapes: list[tuple[int, int, int]]) -> Hall:
    hall, wanted = arc(blocks(shapes)), blocks(shapes)
    assert set(hall.sections) == {block.section_id for block in wanted}
    assert max(hall.size) <= hall_map.COORDINATE_MAX
    for block in wanted:
        section = hall.sections[block.section_id]
        assert (section.rows is None) == (block.rows == 0)
        assert all(is_inside(section.outline, seat) for seat in all_seats(block, section))
        assert all(0 <= x <= hall.size[0] and 0 <= y <= hall.size[1] for x, y in section.outline)
    stage = Drawn(
        tuple((hall.stage[0] + x, hall.stage[1] + y) for x, y in ((-180, -30), (180, -30), (180, 30), (-180, 30)))
    )
    drawn = [stage, *hall.sections.values()]
    assert all(apart(one, other) for one, other in combinations(drawn, 2))
    return hall


@given(HALLS)
def test_no_two_sections_overlap_and_all_seats_are_inside(shapes: list[tuple[int, int, int]]) -> None:
    assert check(shapes) == arc(blocks(shapes))


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 1000, 0)] * 100, [(1000, 1, 0)] * 100, [(1, 1000, 0), (1000, 1, 0)] * 50, [(100, 1000, 0)],
        [(1, 200, 0), (200, 1, 0)] * 250, [(0, 0, 1_000_000)] * 250 + [(10, 40, 0)] * 250,
    ],
    ids=["wide", "deep", "wide and deep", "one", "small", "standing"],
)  # fmt: skip
def test_the_largest_halls_fit(shapes: list[tuple[int, int, int]]) -> None:
    check(shapes)


def test_an_arena_has_its_floor_in_front_and_keeps_its_order() -> None:
    hall = check([(20, 30, 0)] * 4 + [(17, 40, 0)] * 4 + [(0, 0, 4000)])
    tops = {name: min(y for _, y in section.outline) for name, section in hall.sections.items()}
    assert tops["S8"] < min(top for name, top in tops.items() if name != "S8")
    assert [name for name in hall.sections if name != "S8"] == [f"S{n}" for n in range(8)]
    assert hall.sections["S0"].outline[0][0] < hall.sections["S3"].outline[0][0]


def test_a_row_begins_at_its_first_seat_bends_and_turns() -> None:
    rows = Rows((100, 200), pitch=10, spacing=20)
    assert list(hall_map.row_of_seats(rows, 1, 3)) == [(100, 210), (120, 210), (140, 210)]
    assert list(hall_map.row_of_seats(rows._replace(curve=0.01), 0, 3)) == [(100, 200), (120, 204), (140, 200)]
    assert list(hall_map.row_of_seats(rows._replace(angle=90), 1, 3)) == [(90, 200), (90, 220), (90, 240)]


@given(st.integers(1, 60), st.integers(1, 60))
def test_rows_without_parameters_fill_their_outline(count: int, seats: int) -> None:
    for outline in (SQUARE, ((150, 0), (300, 200), (0, 200)), ((0, 0), (300, 40), (280, 200), (30, 180))):
        rows = hall_map.fit_rows(outline, count, seats)
        block = Block("S", count, seats, count * seats)
        assert all(is_inside(outline, seat) for seat in all_seats(block, Drawn(outline, rows)))


def test_the_edge_holds_the_outermost_seats() -> None:
    generator = random.Random(5)
    for _ in range(50):
        rows = Rows(
            (0, 0),
            generator.uniform(5, 20),
            generator.uniform(5, 20),
            generator.uniform(-0.01, 0.01),
            generator.uniform(0, 360),
        )
        everywhere = [point for row in range(7) for point in hall_map.row_of_seats(rows, row, 9)]
        edge = hall_map.edge_seats(rows, 7, 9)
        for axis in (0, 1):
            assert {min(point[axis] for point in edge), max(point[axis] for point in edge)} == {
                min(point[axis] for point in everywhere), max(point[axis] for point in everywhere)
            }  # fmt: skip
