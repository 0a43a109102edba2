"""An import keeps what stands on rows and chairs, and says what it cannot keep; a plan that is ambiguous is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from onsale import event_files
from onsale.errors import OperatorError
from onsale.hall.pretix_plan import import_plan
from onsale.hall.svg_outlines import import_outlines
from shared.contracts.event_file import SeatedSection
from tests.onsale.hall.test_map_commands import DRAWING, EVENT, filled_in, write
from tests.support.running.command_line import Command, command_line


@pytest.fixture
def onsale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def row(label: str, seats: str, y: int, categories: str = "") -> dict[str, Any]:
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
    stalls = [row("A", odd, 0), row("B", odd, 20), row("AA", even, 40), row("C", "1 2a 3 X", 60)]
    assert imported(plan_of(("Stalls", stalls))) == [{
        "section_id": "STALLS", "name": "Stalls · Gold", "seats_per_row": 4, "seats": "odd from the right",
        "rows": ["A", "B", {"row": "AA", "seats": "even"}, {"row": "C", "seats": ["1", "2a", "3", "X"]}],
    }]  # fmt: skip
    counted = [row(str(n), "1 2 3", 20 * n) for n in (1, 2)]
    assert imported(plan_of(("Stalls", counted))) == [
        {"section_id": "STALLS", "name": "Stalls · Gold", "rows": 2, "seats_per_row": 3}
    ]


def test_rows_of_unequal_length_gaps_and_aisles_keep_their_numbers() -> None:
    unequal = [row("A", "1 2 3", 0), row("B", "1 2 3 4", 20), row("C", "1 2 5 6", 40), row("D", "3 4 5 6", 60)]
    aisle = [row("A1", "1 2", 0), row("A1", "3 4", 1), row("B1", "1 2", 20), row("B1", "3 4", 21)]
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
    rows = [row("A", "1 2 3 4 5 6", 0, "ssggss"), row("B", "1 2 3 4 5 6", 20, "ssggss"), row("C", "1 2", 40, "gg")]
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
    plan = plan_of(("Stalls", [row("A", "1 2 3", 0)]))
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
    plan = plan_of(("Stalls", [row("A", "1 2 3", 0)]))
    plan["zones"][0]["rows"][0] |= change
    with pytest.raises(OperatorError, match=r"line \d+") as refused:
        import_plan(json.dumps(plan, indent=1))
    assert says in str(refused.value)


def test_a_field_that_stands_twice_is_refused() -> None:
    text = json.dumps(plan_of(("Stalls", [row("A", "1 2 3", 0)])), indent=1).replace(
        '"row_number"', '"row_number": "B",\n"row_number"'
    )
    with pytest.raises(OperatorError, match="line 20: row_number stands twice"):
        import_plan(text)


def test_what_an_event_file_has_no_place_for_is_said(onsale: Command, tmp_path: Path) -> None:
    plan = plan_of(("Stalls", [row("A", "1 2 3", 0), row("", "1 2 3", 20)]))
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
        'wheelchair of 2 seats is not kept: zone "Stalls", row A, seat 1 (line 1)', "row_label of 1 rows is not kept",
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
    plan = plan_of(("A", [row(label, "1 3 5 7 9", 20 * n) for n, label in enumerate("KLMN")]))
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
    found = import_outlines(DRAWING.replace("</svg>", more), ["A", "GA1"]).left_out
    assert found == [
        "GA1: curves of its outline are kept as straight lines", "GA1: only the first part of its outline is kept",
        "shapes that are no section are not kept: BAR", "not kept, as only outlines are: 2 circle, 1 text",
    ]  # fmt: skip
    plain = '<svg viewBox="0 0 9 9"><rect id="A" width="9" height="9"/></svg>'
    assert import_outlines(plain, ["A"]).left_out == []
