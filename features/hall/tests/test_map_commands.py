"""`onsale map`: a seating plan or a drawing becomes the map of an event file, and the map a picture.

What stands on rows and chairs is kept, or said; a plan that is ambiguous is refused.
"""

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from features.hall.cli import svg_seats
from features.hall.cli.plan_sections import Choices, ImportedPlan, import_plan
from features.hall.hall_map import HallMap, Rows, is_inside, row_of_seats
from features.hall.rules import HallFields
from onsale import event_files
from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.file_parts import part_of
from tests.support.running.program import Command, command_line


@pytest.fixture
def onsale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def row(number: int, places: list[tuple[int, int]], category: str = "Stalls", **more: Any) -> dict[str, Any]:
    seats = [
        {
            "seat_guid": f"{category}-{number}-{n}",
            "seat_number": str(n),
            "position": {"x": x, "y": y},
            "category": category,
        }
        for n, (x, y) in enumerate(places, 1)
    ]
    return {"row_number": str(number), "seats": seats, **more}


def small_plan() -> dict[str, Any]:
    """Stalls with two lengths of rows, and a turned, bent balcony whose first row is its lowest."""
    stalls = [row(n, [(25 * k, 0) for k in range(10)], position={"x": 0, "y": 30 * n}) for n in (1, 2, 3)]
    stalls += [row(n, [(25 * k, 0) for k in range(12)], position={"x": -25, "y": 30 * n}) for n in (4, 5)]
    turned = Rows((300, 300), pitch=-30, spacing=25, curve=0.001, angle=-20)
    balcony = [row(n + 1, list(row_of_seats(turned, n, 9)), "Balcony") for n in range(4)]
    area = {"width": 300, "height": 40, "position": {"x": 20, "y": -60}, "text": "Stage"}
    return {
        "name": "Small Hall", "categories": [{"name": "Stalls"}, {"name": "Balcony"}],
        "size": {"width": 900, "height": 700},
        "zones": [
            {"name": "Ground floor", "position": {"x": 60, "y": 100}, "rows": stalls, "areas": [area]},
            {"name": "Balcony", "position": {"x": 100, "y": 200}, "rows": balcony},
        ],
    }  # fmt: skip


def filled_in(text: str) -> str:
    """The draft after a person has filled it in."""
    values = {"venue": "Town Hall", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z", "price_minor": 4500}
    for name, value in values.items():
        text = re.sub(rf"\b{name}: null", f"{name}: {value}", text)
    return text


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def map_of(event: EventFile) -> HallMap:
    found = part_of(event, HallFields).map
    assert found is not None
    return found


def test_a_seating_plan_becomes_an_event_file(onsale: Command, tmp_path: Path) -> None:
    plan, file = write(tmp_path / "plan.json", json.dumps(small_plan())), tmp_path / "event.yaml"
    done = onsale("map", "import", str(plan), "-o", str(file))
    assert (done.returncode, "3 sections, 90 seats" in done.stdout) == (0, True), done.stderr
    assert "away" not in done.stdout, "every seat is where the plan has it"
    draft = file.read_text()
    with pytest.raises(event_files.BadEventFile, match=r"price_minor"):
        event_files.read(file)
    event = event_files.read(write(file, filled_in(draft)))
    assert [(s.section_id, s.name, s.capacity) for s in event.sections] == [
        ("GROUND_FLOOR_1", "Ground floor · Stalls", 30), ("GROUND_FLOOR_2", "Ground floor · Stalls", 24),
        ("BALCONY", "Balcony · Balcony", 36),
    ]  # fmt: skip
    stage = map_of(event).stage
    assert stage is not None
    assert (stage.at, stage.size) == ((235, 60), (300, 40))


def test_the_seats_lie_where_the_plan_has_them_and_inside_their_outlines() -> None:
    imported = import_plan(json.dumps(small_plan()))
    assert max(imported.deviations.values()) <= 2
    shapes = imported.hall_map["sections"]
    balcony = shapes["BALCONY"]["rows"]
    assert (balcony["angle"], balcony["pitch"]) == (pytest.approx(-20, abs=0.5), pytest.approx(-30, abs=0.5))
    assert balcony["curve"] == pytest.approx(0.001, rel=0.1)
    assert Rows(**{**shapes["GROUND_FLOOR_2"]["rows"], "at": (35, 220)}) == Rows((35, 220), 30, 25)
    for section in imported.event["sections"]:
        shape = shapes[section["section_id"]]
        rows = Rows(**{**shape["rows"], "at": tuple(shape["rows"]["at"])})
        for n in range(section["rows"] if isinstance(section["rows"], int) else len(section["rows"])):
            assert all(is_inside(shape["outline"], seat) for seat in row_of_seats(rows, n, section["seats_per_row"]))


def test_what_rows_cannot_express_is_said(onsale: Command, tmp_path: Path) -> None:
    plan = small_plan()
    plan["zones"] = [
        {"name": "", "position": {"x": 0, "y": 0}, "rows": [row(1, [(0, 0), (20, 0), (80, 0), (100, 0)])]},
        {"name": "One seat", "position": {"x": -50, "y": 200}, "rows": [row(1, [(0, 0)], "Box")]},
    ]
    plan.pop("size")
    file = tmp_path / "event.yaml"
    done = onsale("map", "import", str(write(tmp_path / "plan.json", json.dumps(plan))), "-o", str(file))
    assert "S1: seats lie up to 13" in done.stdout
    event = event_files.read(write(file, filled_in(file.read_text())))
    assert [section.capacity for section in event.sections] == [4, 1]


@pytest.mark.parametrize(
    ("plan", "says"),
    [("{", "not a seating plan"), ('{"name": "x"}', "zones"), ('{"name": "x", "zones": []}', "no seats")],
)
def test_what_is_no_seating_plan_is_refused(plan: str, says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        import_plan(plan)


EVENT = """\
# Our hall
event_id: hall
name: A night   # the second one
venue: Town Hall
currency: EUR
starts_at: 2030-01-01T20:00:00Z
map:
  size: [10, 10]
  sections: {}
# sections from the left
sections:
  - {section_id: A, name: Left, kind: seated, rows: 4, seats_per_row: 5, price_minor: 5000}
  - {section_id: GA1, name: Floor, kind: ga, capacity: 50, price_minor: 3000}
"""
DRAWING = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="10 0 200 100">
  <rect id="stage" x="60" y="0" width="100" height="10"/>
  <g transform="translate(10 20)"><polygon id="A" points="0,0 50,0 50,40 0,40"/></g>
  <g id="GA1" transform="rotate(90, 100, 50) scale(2 1)"><path d="m 40 40 h 20 v 20 c 1 1 2 2 -20 0 z m 99 99 h 1"/></g>
</svg>
"""


def drawn(drawing: str, event: str = EVENT) -> ImportedPlan:
    event = re.sub(r"map:\n.*\n.*\n", "", event)
    return svg_seats.map_of(drawing, EventFile.model_validate(yaml.safe_load(event)), Choices())


def test_a_drawing_gives_outlines_to_the_sections_of_an_event_file(onsale: Command, tmp_path: Path) -> None:
    file, drawing = write(tmp_path / "event.yaml", EVENT), write(tmp_path / "hall.svg", DRAWING)
    assert onsale("map", "import", str(drawing), "-o", str(file)).returncode == 0
    text = file.read_text()
    assert "# Our hall" in text
    assert "# the second one" in text
    assert "# sections from the left" in text
    assert len(re.findall("^map:", text, re.M)) == 1
    hall = map_of(event_files.read(file))
    assert hall.size == (1000, 500), "five times as large: whole numbers are fine enough"
    assert hall.sections["A"].outline == [(0, 100), (250, 100), (250, 300), (0, 300)]
    assert sorted(hall.sections["GA1"].outline) == [(400, 150), (400, 350), (500, 150), (500, 350)]
    assert hall.stage is not None
    assert (hall.stage.at, hall.stage.size) == ((500, 25), (500, 50))


def test_importing_twice_is_importing_once(onsale: Command, tmp_path: Path) -> None:
    file, drawing = write(tmp_path / "event.yaml", EVENT), write(tmp_path / "hall.svg", DRAWING)
    onsale("map", "import", str(drawing), "-o", str(file))
    once = file.read_text()
    onsale("map", "import", str(drawing), "-o", str(file))
    assert file.read_text() == once


@pytest.mark.parametrize(
    ("drawing", "says"),
    [
        ("<svg", "not an SVG"), ("<svg/>", "no size"), ('<svg viewBox="0 0 9 9"/>', "no shape with the id A"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><svg/>', "entities"),
        (DRAWING.replace("translate(10 20)", "scale()"), "not read: scale"),
        (DRAWING.replace("50,40 0,40", "50,0 0,0").replace("0,0 50,0", "0,0 0,0"), "2 corners"),
    ],
)  # fmt: skip
def test_a_drawing_that_does_not_fit_is_refused(drawing: str, says: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(says)):
        drawn(drawing)


def test_a_file_that_would_not_be_valid_is_not_written(onsale: Command, tmp_path: Path) -> None:
    file, plan = write(tmp_path / "event.yaml", EVENT), write(tmp_path / "plan.json", json.dumps(small_plan()))
    refused = onsale("map", "import", str(plan), "-o", str(file))
    assert (refused.returncode, "the event has no section" in refused.stderr) == (2, True)
    assert file.read_text() == EVENT
    for arguments in (
        ("import", str(plan.with_suffix(".pdf")), "-o", str(file)), ("import", "gone.json", "-o", str(file)),
        ("import", str(write(tmp_path / "hall.svg", DRAWING)), "-o", str(tmp_path / "new.yaml")),
        ("show", str(write(tmp_path / "no.yaml", "a: 1"))), ("show", str(write(tmp_path / "no.yaml", "a: [1"))),
    ):  # fmt: skip
        assert onsale("map", *arguments).returncode == 2


@pytest.mark.parametrize("hall", ["deploy/events/arena.yaml", None], ids=["by itself", "drawn"])
def test_a_hall_is_drawn_as_a_picture(onsale: Command, tmp_path: Path, hall: str | None) -> None:
    if hall is None:
        file = tmp_path / "event.yaml"
        onsale("map", "import", str(write(tmp_path / "plan.json", json.dumps(small_plan()))), "-o", str(file))
        event = EventFile.model_validate(yaml.safe_load(filled_in(file.read_text())))
    else:
        file = Path(__file__).parents[3] / hall
        event = event_files.read(file)
    picture = tmp_path / "hall.svg"
    shown = onsale("map", "show", str(file), "-o", str(picture))
    assert shown.returncode == 0, shown.stderr
    root = ET.fromstring(picture.read_text())
    groups = [element for element in root if element.tag.endswith("}g")]
    assert {group.get("id") for group in groups} == {section.section_id for section in event.sections}
    seats = sum(path.get("d", "").count("M") for path in root.iter() if path.tag.endswith("}path"))
    assert seats == sum(section.capacity for section in event.sections if section.kind == "seated")
    assert f"{seats} seats" in shown.stdout
    assert math.prod(map(float, root.get("viewBox", "").split()[2:])) > 0


# -- labels -----------------------------------------------------------------------------------------------------------


def labelled(label: str, seats: str, y: int, categories: str = "") -> dict[str, Any]:
    """A row of seats with these numbers; `categories` has a letter for each seat."""
    names = {"g": "Gold", "s": "Silver", "": "Gold"}
    return {
        "row_number": label, "position": {"x": 0, "y": y},
        "seats": [
            {"seat_guid": f"{label}/{number}", "seat_number": number, "position": {"x": 20 * n, "y": 0},
             "category": names[categories[n : n + 1]]}
            for n, number in enumerate(seats.split())
        ],
    }  # fmt: skip


def plan_of(*zones: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A plan of these zones, one behind the other."""
    found = [{"name": name, "position": {"x": 50, "y": 400 * n}, "rows": rows} for n, (name, rows) in enumerate(zones)]
    return {
        "name": "Opera", "categories": [{"name": "Gold", "color": "#fc0"}, {"name": "Silver"}],
        "zones": found,
    }  # fmt: skip


def imported(plan: dict[str, Any]) -> list[dict[str, Any]]:
    sections = import_plan(json.dumps(plan)).event["sections"]
    return [{name: value for name, value in one.items() if name not in ("kind", "price_minor")} for one in sections]


def tickets(section: dict[str, Any]) -> list[str]:
    """The seats as tickets name them."""
    labels = SeatedSection.model_validate({**section, "kind": "seated", "price_minor": 0}).labels
    return [f"{section['name']} {row} {seat}" for row, seats in labels.front(len(labels.rows)) for seat in seats]


def test_rows_and_seats_keep_their_numbers() -> None:
    odd, even = "7 5 3 1", "2 4 6 8"
    stalls = [labelled("A", odd, 0), labelled("B", odd, 20), labelled("AA", even, 40), labelled("C", "1 2a 3 X", 60)]
    assert imported(plan_of(("Stalls", stalls))) == [{
        "section_id": "STALLS", "name": "Stalls · Gold", "seats_per_row": 4, "seats": "odd from the right",
        "rows": ["A", "B", {"row": "AA", "seats": "even"}, {"row": "C", "seats": ["1", "2a", "3", "X"]}],
    }]  # fmt: skip
    counted = [labelled(str(n), "1 2 3", 20 * n) for n in (1, 2)]
    assert imported(plan_of(("Stalls", counted))) == [
        {"section_id": "STALLS", "name": "Stalls · Gold", "rows": 2, "seats_per_row": 3}
    ]


def test_rows_of_unequal_length_gaps_and_aisles_keep_their_numbers() -> None:
    unequal = [
        labelled("A", "1 2 3", 0),
        labelled("B", "1 2 3 4", 20),
        labelled("C", "1 2 5 6", 40),
        labelled("D", "3 4 5 6", 60),
    ]
    aisle = [labelled("A1", "1 2", 0), labelled("A1", "3 4", 1), labelled("B1", "1 2", 20), labelled("B1", "3 4", 21)]
    for n in (1, 3):
        aisle[n]["position"]["x"] = 100
    found = imported(plan_of(("Stalls", unequal), ("Circle", aisle)))
    expected = [
        f"{label} {seat}"
        for label, seats in (("A", "123"), ("B", "1234"), ("C", "1256"), ("D", "3456"))
        for seat in seats
    ]
    assert [ticket for section in found[:2] for ticket in tickets(section)] == [
        f"Stalls · Gold {one}" for one in expected
    ]
    assert found[1]["rows"] == [
        "B",
        {"row": "C", "seats": ["1", "2", "5", "6"]},
        {"row": "D", "seats": "consecutive from 3"},
    ]
    assert [(one["rows"], one.get("seats")) for one in found[2:]] == [
        (["A1", "B1"], None),
        (["A1", "B1"], "consecutive from 3"),
    ], "a section on each side"


def test_a_row_of_two_categories_is_cut_where_the_price_changes() -> None:
    rows = [
        labelled("A", "1 2 3 4 5 6", 0, "ssggss"),
        labelled("B", "1 2 3 4 5 6", 20, "ssggss"),
        labelled("C", "1 2", 40, "gg"),
    ]
    found = imported(plan_of(("Stalls", rows)))
    assert [(one["name"], one["seats_per_row"], one.get("seats")) for one in found] == [
        ("Stalls · Silver", 2, None), ("Stalls · Gold", 2, "consecutive from 3"),
        ("Stalls · Silver", 2, "consecutive from 5"), ("Stalls · Gold", 2, None),
    ]  # fmt: skip
    assert len({ticket for section in found for ticket in tickets(section)}) == 14


AMBIGUOUS = {
    "one guid": ("seat_guid", "two seats have the guid A/1: "),
    "one number": ("seat_number", "two seats are called the same: "),
}


@pytest.mark.parametrize(("field", "says"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_seats_that_nobody_could_tell_apart_are_refused(field: str, says: str) -> None:
    plan = plan_of(("Stalls", [labelled("A", "1 2 3", 0)]))
    first, second, _ = plan["zones"][0]["rows"][0]["seats"]
    second[field] = first[field]
    text = json.dumps(plan, indent=1)
    with pytest.raises(OperatorError) as refused:
        import_plan(text)
    lines = [n - 1 for n, each in enumerate(text.splitlines(), 1) if '"seat_guid"' in each]
    assert says + f'zone "Stalls", row A, seat {first["seat_number"]} (line {lines[0]})' in str(refused.value)
    assert f'zone "Stalls", row A, seat {second["seat_number"]} (line {lines[1]})' in str(refused.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"row_number": "Row A"}, "the number 'Row A' cannot stand on a ticket: a label has 1 to 8 letters"),
        ({"row_number": ["A"]}, "zones.0.rows.0.row_number: write one text"),
        (
            {"seats": [{"position": {"x": 1, "y": 1}, "seat_number": "no. 1"}]},
            "the number 'no. 1' cannot stand on a ticket",
        ),
        ({"seats": [{"seat_number": "1"}]}, "zones.0.rows.0.seats.0.position: it is missing"),
    ],
)
def test_what_cannot_stand_on_a_ticket_is_refused_with_its_line(change: dict[str, Any], says: str) -> None:
    plan = plan_of(("Stalls", [labelled("A", "1 2 3", 0)]))
    plan["zones"][0]["rows"][0] |= change
    with pytest.raises(OperatorError, match=r"line \d+") as refused:
        import_plan(json.dumps(plan, indent=1))
    assert says in str(refused.value)


def test_a_field_that_stands_twice_is_refused() -> None:
    text = json.dumps(plan_of(("Stalls", [labelled("A", "1 2 3", 0)])), indent=1).replace(
        '"row_number"', '"row_number": "B",\n"row_number"'
    )
    with pytest.raises(OperatorError, match="line 20: row_number stands twice"):
        import_plan(text)


def test_what_an_event_file_has_no_place_for_is_said(onsale: Command, tmp_path: Path) -> None:
    plan = plan_of(("Stalls", [labelled("A", "1 2 3", 0), labelled("", "1 2 3", 20)]))
    seats = plan["zones"][0]["rows"][0]["seats"]
    seats[0]["wheelchair"] = True
    seats[2] |= {"wheelchair": True, "seat_number": "3", "restricted": False}
    plan["zones"][0]["rows"][1]["row_label"] = "Box"
    plan["zones"][0]["areas"] = [
        {"width": 300, "height": 40, "position": {"x": 0, "y": 0}, "text": text, "rotation": 5}
        for text in ("Stage", "Bar")
    ]
    file = tmp_path / "event.yaml"
    done = onsale("map", "import", str(write(tmp_path / "plan.json", json.dumps(plan))), "-o", str(file))
    assert done.returncode == 0, done.stderr
    for says in (
        "places for wheelchairs (wheelchair): 2, by the mark wheelchair", "row_label of 1 rows is not kept",
        '"Bar" in line 1 is not kept', "rotation of 1 stage is not kept", 'color of 1 categories is not kept: "Gold"',
        "seat_guid of the seats is not kept", "the row has no number: it is counted in its zone",
    ):  # fmt: skip
        assert says in done.stdout
    assert "restricted" not in done.stdout
    event = event_files.read(write(file, filled_in(file.read_text())))
    section = event.sections[0]
    assert isinstance(section, SeatedSection)
    assert section.labels.rows == ("A", "2")


def test_a_map_for_a_file_with_other_labels_says_what_to_write(onsale: Command, tmp_path: Path) -> None:
    plan = plan_of(("A", [labelled(label, "1 3 5 7 9", 20 * n) for n, label in enumerate("KLMN")]))
    lines = [line for line in EVENT.splitlines() if "GA1" not in line]
    file = write(tmp_path / "event.yaml", "\n".join(lines) + "\n")
    path = write(tmp_path / "plan.json", json.dumps(plan))
    done = onsale("map", "import", str(path), "-o", str(file))
    assert "A: the plan's rows and seats are not kept; to have them, write there" in done.stdout, done.stderr
    advice = "rows: [K, L, M, N], seats_per_row: 5, seats: odd"
    assert advice in done.stdout
    write(file, file.read_text().replace("rows: 4, seats_per_row: 5", advice))
    again = onsale("map", "import", str(path), "-o", str(file))
    assert (again.returncode, "to have them" in again.stdout) == (0, False)


def test_a_drawing_says_what_is_no_outline() -> None:
    more = '<circle r="1"/><circle r="2"/><text>Row A</text><rect id="BAR" width="5" height="5"/><g id="A"/></svg>'
    found = drawn(DRAWING.replace("</svg>", more)).left_out
    assert found == [
        "GA1: curves of its outline are kept as straight lines", "GA1: only the first part of its outline is kept",
        "shapes that are no section are not kept: BAR", "not kept, as only outlines and seats are: 2 circle, 1 text",
    ]  # fmt: skip
    plain = '<svg viewBox="0 0 9 9"><rect id="A" width="9" height="9"/></svg>'
    assert drawn(plain, "\n".join(line for line in EVENT.splitlines() if "GA1" not in line)).left_out == []
