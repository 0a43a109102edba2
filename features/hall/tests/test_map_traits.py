"""`onsale map import`: categories of a plan or a drawing become prices and traits of places, or it is said why not."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from features.hall.cli import svg_outlines
from features.hall.cli.plan_sections import Choices, import_plan
from features.hall.cli.svg_seats import draft_of
from features.hall.cli.trait_words import is_unclear, traits_in
from features.hall.tests.test_map_commands import filled_in, map_of, onsale, write
from onsale import event_files
from onsale.errors import OperatorError
from shared.contracts.event_file import EventFile, SeatedSection
from tests.inventory.conftest import EVENT, Inventory
from tests.support.running.program import Command

__all__ = ["onsale"]


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("Rollstuhl", "wheelchair"), ("Kat. 2 Rollstuhlplätze", "wheelchair"), ("Wheelchair space", "wheelchair"),
        ("Fauteuil roulant", "wheelchair"), ("PMR", "wheelchair"), ("silla de ruedas", "wheelchair"),
        ("كرسي متحرك", "wheelchair"), ("Begleitperson", "companion"), ("Wheelchair companion", "companion"),
        ("Rollstuhl-Begleitung", "companion"), ("accompagnateur", "companion"), ("acompañante", "companion"),
        ("مرافق", "companion"), ("restricted_view", "restricted_view"), ("Sichtbehindert", "restricted_view"),
        ("Eingeschränkte Sicht", "restricted_view"), ("visibilité réduite", "restricted_view"),
        ("Visibilidad reducida", "restricted_view"), ("رؤية محدودة", "restricted_view"),
        ("step-free", "easy_access"), ("Barrierefrei", "easy_access"), ("wheelchair accessible", "wheelchair"),
        ("Rollstuhl, Sichtbehinderung", "restricted_view wheelchair"), ("Not wheelchair accessible", ""),
        ("kein Rollstuhl", ""), ("Restricted", ""), ("Gold", ""), ("Schwerbehindert", ""),
        ("Wheelchair and companion", ""),
    ],
)  # fmt: skip
def test_words_say_a_trait(text: str, traits: str) -> None:
    assert " ".join(sorted(traits_in(text))) == traits


@pytest.mark.parametrize(
    ("text", "unclear"),
    [("Wheelchair + companion", True), ("Rollstuhl mit Begleitung", True), ("Wheelchair companion", False),
     ("Rollstuhl & Gold", False)],
)  # fmt: skip
def test_wheelchair_or_companion_is_unclear(text: str, unclear: bool) -> None:
    assert is_unclear(text) is unclear


def plan_row(label: str, categories: list[str], y: int) -> dict[str, Any]:
    return {
        "row_number": label, "position": {"x": 0, "y": y},
        "seats": [
            {"seat_guid": f"{label}/{n}", "seat_number": str(n), "position": {"x": 25 * n, "y": 0}, "category": each}
            for n, each in enumerate(categories, 1)
        ],
    }  # fmt: skip


def plan(zone: str = "Parkett") -> dict[str, Any]:
    """Two rows in the first category, two in the second; in the last are places for wheelchairs and companions."""
    rows = [
        plan_row("A", ["Gold"] * 6, 0), plan_row("B", ["Gold"] * 6, 30), plan_row("C", ["Silber"] * 6, 60),
        plan_row("D", ["Silber", "Rollstuhl", "Begleitperson", "Silber", "Silber", "Sichtbehindert"], 90),
    ]  # fmt: skip
    return {"name": "Oper", "categories": [], "zones": [{"name": zone, "position": {"x": 60, "y": 100}, "rows": rows}]}


AS_SILVER = Choices(prices=dict.fromkeys(["Rollstuhl", "Begleitperson", "Sichtbehindert"], "Silber"))


def test_rows_of_other_categories_are_price_levels_and_seats_of_others_are_sections() -> None:
    imported = import_plan(json.dumps(plan()))
    sections = imported.event["sections"]
    assert [(one["name"], one["rows"], one.get("seats"), one.get("traits")) for one in sections] == [
        ("Parkett", ["A", "B", "C"], None, None), ("Parkett · Silber", ["D"], "odd", None),
        ("Parkett · Rollstuhl", ["D"], "even", {"wheelchair": ["D"]}),
        ("Parkett · Begleitperson", ["D"], "odd from 3", {"companion": ["D"]}),
        ("Parkett · Silber", ["D"], "consecutive from 4", None),
        ("Parkett · Sichtbehindert", ["D"], "even from 6", {"restricted_view": ["D"]}),
    ]  # fmt: skip
    assert sections[0]["price_levels"] == [{"name": "Silber", "rows": ["C", "C"], "price_minor": None}]
    assert max(imported.deviations.values()) < 1, "every seat is where the plan has it"
    assert imported.taken == [
        'places for wheelchairs (wheelchair): 1, by the category "Rollstuhl"',
        'places for companions (companion): 1, by the category "Begleitperson"',
        'places with a restricted view (restricted_view): 1, by the category "Sichtbehindert"',
        'the price of the category "Gold": PARKETT_1',
        'the price of the category "Silber": PARKETT_1 (price level), PARKETT_2, PARKETT_5',
        'the price of the category "Rollstuhl": PARKETT_3', 'the price of the category "Begleitperson": PARKETT_4',
        'the price of the category "Sichtbehindert": PARKETT_6',
    ]  # fmt: skip
    assert 'if it costs what the seats beside it cost: --price "Rollstuhl=Silber"' in "\n".join(imported.left_out)


def test_a_category_at_the_price_of_another_stays_in_its_section() -> None:
    imported = import_plan(json.dumps(plan()), AS_SILVER)
    (section,) = imported.event["sections"]
    assert (section["section_id"], section["rows"], section["seats_per_row"]) == ("PARKETT", ["A", "B", "C", "D"], 6)
    assert section["traits"] == {"wheelchair": ["D-2"], "companion": ["D-3"], "restricted_view": ["D-6"]}
    assert section["price_levels"] == [{"name": "Silber", "rows": ["C", "D"], "price_minor": None}]
    assert "cuts its rows" not in "\n".join(imported.left_out)


def test_a_section_has_no_more_price_levels_than_an_event_file() -> None:
    many = plan()
    many["zones"][0]["rows"] = [plan_row(str(n), ["Gold" if n % 2 else "Silber"] * 2, 30 * n) for n in range(1, 121)]
    for section in (sections := import_plan(json.dumps(many)).event["sections"]):
        SeatedSection.model_validate({
            **section, "price_minor": 0,
            "price_levels": [{**level, "price_minor": 0} for level in section["price_levels"]],
        })  # fmt: skip
    assert sum(one["rows"] if isinstance(one["rows"], int) else len(one["rows"]) for one in sections) == 120


def test_a_person_says_what_a_category_is(onsale: Command, tmp_path: Path) -> None:
    unclear, file = plan(), tmp_path / "event.yaml"
    unclear["zones"][0]["rows"][3]["seats"][4]["category"] = "Rollstuhl & Begleitung"
    path = write(tmp_path / "plan.json", json.dumps(unclear))
    said = onsale("map", "import", str(path), "-o", str(file))
    assert 'the category "Rollstuhl & Begleitung" is not taken as a trait' in said.stdout
    file.unlink()
    done = onsale(
        "map", "import", str(path), "-o", str(file), "--trait", "Rollstuhl & Begleitung=companion",
        "--trait", "Sichtbehindert=none", "--trait", "Gold=easy_access",
        *(part for each in ("Rollstuhl", "Begleitperson", "Sichtbehindert", "Rollstuhl & Begleitung")
          for part in ("--price", f"{each}=Silber")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is not taken as a trait" not in done.stdout
    assert 'places without steps (easy_access): 12, by the category "Gold", as you say' in done.stdout
    (section,) = yaml.safe_load(file.read_text())["sections"]
    assert section["traits"] == {"wheelchair": ["D-2"], "companion": ["D-3", "D-5"], "easy_access": ["A", "B"]}
    onsale("map", "show", str(file))
    drawn = Counter(re.findall(r"<title>(\w+)</title></circle>", file.with_suffix(".svg").read_text()))
    assert drawn == {"wheelchair": 1, "companion": 2, "easy_access": 12}


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--trait", "Loge=wheelchair", 'there is no category "Loge"; there is "Begleitperson", "Gold"'),
     ("--trait", "Gold=wheels", "there is no trait wheels"), ("--trait", "Gold", "write the name of a category"),
     ("--price", "Gold=Loge", 'there is no category "Loge"')],
)  # fmt: skip
def test_what_a_plan_has_not_is_refused(onsale: Command, tmp_path: Path, option: str, value: str, says: str) -> None:
    path, file = write(tmp_path / "plan.json", json.dumps(plan())), tmp_path / "event.yaml"
    refused = onsale("map", "import", str(path), "-o", str(file), option, value)
    assert (refused.returncode, says in refused.stderr, file.exists()) == (2, True, False), refused.stderr


async def test_what_is_imported_can_be_applied(inventory: Inventory, onsale: Command, tmp_path: Path) -> None:
    path, file = write(tmp_path / "plan.json", json.dumps(plan())), tmp_path / "event.yaml"
    onsale("map", "import", str(path), "-o", str(file))
    event = event_files.read(write(file, filled_in(file.read_text()).replace("event_id: oper", f"event_id: {EVENT}")))
    assert (await inventory.put(event.model_dump(mode="json"))).is_success
    await inventory.state.catalogue.refresh()
    sections = (await inventory.fans.get(f"/events/{EVENT}")).json()["sections"]
    assert [section["name"] for section in sections] == [section.name for section in event.sections]
    shapes = (await inventory.fans.get(f"/events/{EVENT}/map")).json()["sections"]
    assert sum(shape["rows"]["count"] * shape["rows"]["seats"] for shape in shapes) == 24


def test_marks_and_zones_say_traits() -> None:
    marked = plan("Rollstuhlplätze")
    marked["zones"][0]["rows"] = [plan_row("A", ["Gold"] * 4, 0)]
    seats = marked["zones"][0]["rows"][0]["seats"]
    seats[0]["type"], seats[1]["restricted_view"], seats[2]["type"], seats[3]["companion"] = (
        "companion",
        1,
        "normal",
        False,
    )
    imported = import_plan(json.dumps(marked))
    assert imported.event["sections"][0]["traits"] == {
        "wheelchair": ["A"], "companion": ["A-1"], "restricted_view": ["A-2"]
    }  # fmt: skip
    assert [line for line in imported.left_out if "seat_guid" not in line] == [
        'type of 1 seats is not kept: zone "Rollstuhlplätze", row A, seat 3 (line 1)'
    ]


FILE = """\
event_id: hall
name: A night
venue: Town Hall
currency: EUR
starts_at: 2030-01-01T20:00:00Z
sections:
  # from the front
  - section_id: PARKETT   # our best
    name: Stalls
    kind: seated
    rows: [K, L, M, N]
    seats_per_row: 6
    price_minor: 5000
    traits:
      easy_access:
        - K
      wheelchair: [K-1]
    # and behind
"""


def test_a_file_gets_the_traits_of_its_places_and_keeps_the_rest(onsale: Command, tmp_path: Path) -> None:
    path, file = write(tmp_path / "plan.json", json.dumps(plan())), write(tmp_path / "event.yaml", FILE)
    options = [part for each in AS_SILVER.prices for part in ("--price", f"{each}=Silber")]
    done = onsale("map", "import", str(path), "-o", str(file), *options)
    assert done.returncode == 0, done.stderr
    assert "PARKETT: the plan's price levels are not kept; to have them, write there price_levels: " in done.stdout
    once = file.read_text()
    wanted = "{easy_access: [K], wheelchair: [N-2], companion: [N-3], restricted_view: [N-6]}"
    assert once.startswith(FILE[: FILE.index("traits:")] + f"traits: {wanted}\n    # and behind\nmap:")
    onsale("map", "import", str(path), "-o", str(file), *options)
    assert file.read_text() == once


def test_a_file_with_other_rows_gets_no_traits_and_it_is_said(onsale: Command, tmp_path: Path) -> None:
    path, file = write(tmp_path / "plan.json", json.dumps(plan())), tmp_path / "event.yaml"
    write(file, FILE.replace("seats_per_row: 6", "seats_per_row: 5"))
    options = [part for each in AS_SILVER.prices for part in ("--price", f"{each}=Silber")]
    done = onsale("map", "import", str(path), "-o", str(file), *options)
    assert "PARKETT: the plan's traits are not kept" in done.stdout, done.stderr
    assert "wheelchair: [K-1]" in file.read_text()


DRAWN = """\
<svg xmlns="http://www.w3.org/2000/svg" xmlns:inkscape="http://www.inkscape.org/namespaces/inkscape"
 viewBox="0 0 400 300">
<title>Stadthalle</title>
<defs><rect id="stage" width="3" height="3"/></defs>
<rect inkscape:label="stage" x="100" y="0" width="200" height="20"/>
<g id="layer1" inkscape:label="Parkett">
  <rect inkscape:label="Bar" x="1" y="1" width="5" height="5"/>
  <g data-row="B" class="cat-silver" transform="translate(0 20)">
    <g data-seat="1"><circle cx="50" cy="50" r="4"/><text>1</text></g>
    <g data-seat="2"><circle cx="70" cy="50" r="4"/></g>
    <g data-seat="3" data-restricted-view=""><circle cx="90" cy="50" r="4"/></g>
  </g>
  <g data-row="A" class="cat-gold">
    <circle cx="90" cy="50" r="4" data-seat="3"/>
    <rect x="66" y="46" width="8" height="8" data-seat="2"><title>Begleitplatz</title></rect>
    <circle cx="50" cy="50" r="4" data-seat="1" class="seat wheelchair"/>
  </g>
</g>
<g id="BALKON"><polygon points="40,150 200,150 200,220 40,220"/>
  <circle id="BALKON-1-1" cx="50" cy="160"/><use id="BALKON-1-2" href="#seat" x="80" y="160"/>
</g>
</svg>
"""


def test_a_drawing_with_seats_becomes_an_event_file(onsale: Command, tmp_path: Path) -> None:
    drawing, file = write(tmp_path / "hall.svg", DRAWN), tmp_path / "event.yaml"
    done = onsale("map", "import", str(drawing), "-o", str(file))
    assert done.returncode == 0, done.stderr
    for says in (
        'wheelchairs (wheelchair): 1, by the mark class "wheelchair"', '(companion): 1, by the mark "Begleitplatz"',
        "(restricted_view): 1, by the mark data-restricted-view", 'the price of the category "gold": PARKETT',
        'the price of the category "silver": PARKETT (price level)', "the price of seats without a category: BALKON",
        "shapes that are no section are not kept: Bar",
    ):  # fmt: skip
        assert says in done.stdout
    event = event_files.read(write(file, filled_in(file.read_text())))
    assert event.name == "Stadthalle"
    stalls, balcony = event.sections
    assert isinstance(stalls, SeatedSection)
    assert (stalls.section_id, stalls.name, stalls.labels.rows) == ("PARKETT", "Parkett", ("A", "B"))
    assert stalls.traits == {"wheelchair": ["A-1"], "companion": ["A-2"], "restricted_view": ["B-3"]}
    assert [(level.name, level.rows) for level in stalls.price_levels] == [("silver", ("B", "B"))]
    drawn = map_of(event)
    assert drawn.stage is not None
    assert drawn.stage.size == (500, 50), "of the shape that is drawn"
    rows = drawn.sections["PARKETT"].rows
    assert rows is not None
    assert (rows.at, rows.pitch, rows.spacing) == ((125, 125), 50, 50)
    assert drawn.sections[balcony.section_id].outline == [(100, 375), (500, 375), (500, 550), (100, 550)]


def test_a_drawing_gives_traits_to_the_sections_of_a_file(onsale: Command, tmp_path: Path) -> None:
    file = write(tmp_path / "event.yaml", re.sub(r"    traits:(\n {6}.*)*", "", FILE).replace("    # and behind\n", """\
  - {section_id: PLATFORM, name: Platform, kind: ga, capacity: 9, price_minor: 10}   # new
  - {section_id: BALKON, name: Balcony, kind: seated, rows: 2, seats_per_row: 2, price_minor: 10}
"""))  # fmt: skip
    drawing = write(tmp_path / "hall.svg", """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 600">
<g data-name="PARKETT" class="step-free"><path d="M0 0H600V300H0z"/></g>
<rect id="PLATFORM" class="wheelchair cat-VIP" y="400" width="50" height="50"/>
<rect id="BALKON" y="500" width="50" height="50"/><circle id="BALKON-1-1" cx="9" cy="510" data-category="Gold"/>
</svg>""")  # fmt: skip
    for option, says in (("--price", "leaves the prices"), ("--trait", "there is no trait Gold")):
        refused = onsale("map", "import", str(drawing), "-o", str(file), option, "VIP=Gold")
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    done = onsale("map", "import", str(drawing), "-o", str(file), "--trait", "VIP=easy_access")
    assert done.returncode == 0, done.stderr
    for says in (
        "PARKETT is taken as places without steps", "PLATFORM is taken as places without steps, for wheelchairs",
        'the categories "Gold" have no price here', "BALKON: the seats of the drawing are not those of the file",
    ):  # fmt: skip
        assert says in done.stdout
    text = file.read_text()
    assert "  - section_id: PARKETT   # our best\n    traits: {easy_access: [K, L, M, N]}\n    name: Stalls" in text
    assert "{section_id: PLATFORM, traits: [easy_access, wheelchair], name: Platform" in text
    assert isinstance(event_files.read(file), EventFile)


def test_a_drawing_without_seats_needs_a_file(onsale: Command, tmp_path: Path) -> None:
    drawing = write(tmp_path / "hall.svg", '<svg viewBox="0 0 9 9"><rect id="A" width="9" height="9"/></svg>')
    refused = onsale("map", "import", str(drawing), "-o", str(tmp_path / "event.yaml"))
    assert (refused.returncode, "the drawing has no seats" in refused.stderr) == (2, True)


def test_an_id_of_a_seat_is_one_beside_its_section_only() -> None:
    from features.hall.cli.svg_seats import draft_of

    with pytest.raises(OperatorError, match="no seats"):
        draft_of('<svg viewBox="0 0 9 9"><circle id="path-12-3" cx="1" cy="1"/></svg>', "hall", Choices())


def test_each_group_is_read_once_however_many_seats_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read for each of its seats, a flat drawing of 50,000 seats took more than a minute."""
    calls = Counter[int]()

    def counted(element: ET.Element, tag_of: Any = svg_outlines.tag_of) -> str:
        calls[seats] += 1
        return str(tag_of(element))

    monkeypatch.setattr(svg_outlines, "tag_of", counted)
    for seats in (100, 400):
        drawn = "".join(
            f'<circle cx="{10 + n % 20}" cy="{10 + n // 20}" r="1" data-row="{n // 20}" data-seat="{n % 20}"/>'
            for n in range(seats)
        )
        draft_of(f'<svg viewBox="0 0 100 100"><g id="STALLS">{drawn}</g></svg>', "A hall", Choices({}, {}))
    assert calls[400] < 6 * calls[100]
