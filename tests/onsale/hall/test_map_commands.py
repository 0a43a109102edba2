"""`onsale map`: a seating plan or a drawing becomes the map of an event file, and the map a picture."""

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from onsale import event_files
from onsale.errors import OperatorError
from onsale.hall.pretix_plan import import_plan
from onsale.hall.svg_outlines import import_outlines
from shared.contracts.event_file import EventFile
from shared.rules.hall_layout import Rows, is_inside, row_of_seats
from tests.support.running.command_line import Command, command_line


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
    assert event.map is not None
    assert event.map.stage is not None
    assert (event.map.stage.at, event.map.stage.size) == ((235, 60), (300, 40))


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


def test_a_drawing_gives_outlines_to_the_sections_of_an_event_file(onsale: Command, tmp_path: Path) -> None:
    file, drawing = write(tmp_path / "event.yaml", EVENT), write(tmp_path / "hall.svg", DRAWING)
    assert onsale("map", "import", str(drawing), "-o", str(file)).returncode == 0
    text = file.read_text()
    assert "# Our hall" in text
    assert "# the second one" in text
    assert "# sections from the left" in text
    assert len(re.findall("^map:", text, re.M)) == 1
    event = event_files.read(file)
    assert event.map is not None
    assert event.map.size == (1000, 500), "five times as large: whole numbers are fine enough"
    assert event.map.sections["A"].outline == [(0, 100), (250, 100), (250, 300), (0, 300)]
    assert sorted(event.map.sections["GA1"].outline) == [(400, 150), (400, 350), (500, 150), (500, 350)]
    assert event.map.stage is not None
    assert (event.map.stage.at, event.map.stage.size) == ((500, 25), (500, 50))


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
        import_outlines(drawing, ["A", "GA1"])


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
