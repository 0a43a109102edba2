"""An event file means one thing: what it says.

Anything else is refused, with its line and what to write instead; so is one that cannot be read, by a sentence that
names it. It is applied to all services or to none, and a dry run reports what it would change.
"""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onsale import event_files
from onsale.strict_yaml import BadYaml, YamlText, read_yaml, write_yaml
from shared.contracts.event_file import EventFile
from tests.support.running.command_line import Command, event_file
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite


async def stored_values(suite: RunningSuite, event_id: str) -> list[Any]:
    """The event's name in inventory, its rate in the queue, and the number of its price changes in orders."""
    async with suite.operator() as operator:
        event = await operator.get(f"/events/{event_id}")
        room = await operator.get(f"/admin/events/{event_id}/room")
        changes = await operator.get(f"/admin/orders/events/{event_id}/price-changes")
    name = event.json().get("name") if event.is_success else None
    return [name, room.json().get("rate_per_s"), len(changes.json().get("changes", []))]


async def test_an_event_file_that_one_service_refuses_changes_no_service(
    suite: RunningSuite, onsale: Command, tmp_path: Path
) -> None:
    event_id, key = "t-all-or-nothing", ("--data-dir", str(suite.data_dir))

    async def apply(*options: str, **changes: Any) -> Any:
        return await asyncio.to_thread(
            onsale, "events", "apply", event_file(tmp_path, event_id, **changes), *options, *key
        )

    dry_run = await apply("--dry-run")
    assert (dry_run.returncode, "would change inventory, orders, queue" in dry_run.stdout) == (0, True)
    assert await stored_values(suite, event_id) == [None, None, 0], "a dry run changes nothing"
    created = await apply()
    assert f"its room is a draft: onsale room open {event_id}" in created.stdout
    before = await stored_values(suite, event_id)
    assert before == ["Before", 5.0, 1]
    assert (await asyncio.to_thread(onsale, "room", "open", event_id, *key)).returncode == 0
    async with suite.browser() as browser:
        await fan_of(browser, event_id).join()
    fee = {"name": "Service", "percent": "5"}
    refused = await apply(name="After", fees=[fee], room={"rate_per_s": 9, **LOTTERY})
    assert (refused.returncode, "Fans have joined" in refused.stderr) == (2, True)
    assert await stored_values(suite, event_id) == before
    repeated = await apply()
    assert f"{event_id}: applied, changed nothing" in repeated.stdout


LOTTERY = {
    "ordering": "lottery",
    "queue_opens_at": "2029-12-01T10:00:00Z",
    "sale_starts_at": "2029-12-01T12:00:00Z",
    "lottery": {
        "entry_closes_at": "2029-12-01T11:00:00Z",
        "public_value": {"what": "the closing price", "known_at": "2029-12-01T11:30:00Z"},
    },
}


ROOT = Path(__file__).parents[3]
FILE = """\
event_id: night-1
name: Night
venue: Hall
currency: EUR
starts_at: 2030-01-01T20:00:00Z   # doors at seven
room: {rate_per_s: 5}  # five a second
sections:
  - {section_id: A, name: Left, kind: seated, rows: 4, seats_per_row: 5, price_minor: 5000}
  - {section_id: GA1, name: Floor, kind: ga, capacity: 50, price_minor: 3000} #standing
"""
MISREAD = {
    "two blocks of fees": ("venue: Hall", "fees: []\nvenue: Hall\nfees: []", 5, "stands here twice, first in line 3"),
    "two prices": ("price_minor: 5000", "price_minor: 5000, price_minor: 10", 8, "`price_minor` stands here twice"),
    "a name with a hash": ("name: Night", "name: Night #1 Fan", 2, 'put it in quotes: "Night #1 Fan"'),
    "a name with a hash apart": ("name: Night", "name: Night # 1 Fan", 2, 'put it in quotes: "Night # 1 Fan"'),
    "a name with a hash far apart": ("name: Night", "name: Night  #1", 2, 'put it in quotes: "Night  #1"'),
    "a name within a group": ("name: Left,", "name: Row #1,", 8, "put it in quotes"),
    "a colour": ("venue: Hall", "venue: Hall\nbrand: {accent: 1}\n", 4, "brand.accent: 1 is not read as a text"),
    "a colour without quotes": ("venue: Hall", "venue: Hall\nbrand:\n  accent: #ff0000", 5, 'quotes: "#ff0000"'),
    "a number as an id": ("section_id: A", "section_id: 101", 8, 'put it in quotes, "101"'),
    "a no as an id": ("section_id: A", "section_id: NO", 8, 'write "NO" for the text, or true or false'),
    "an octal number as an id": ("section_id: A", "section_id: 010", 8, '"010" for the text, or 10 for the number'),
    "an octal number": ("seats_per_row: 5", "seats_per_row: 010", 8, "or 10 for the number"),
    "an octal number of today": ("seats_per_row: 5", "seats_per_row: 0o10", 8, "0o10 is read as another number"),
    "a number with a mark": ("seats_per_row: 5", "seats_per_row: 1_0", 8, "or 10 for the number"),
    "sixtieths": ("seats_per_row: 5", "seats_per_row: 12:30:00", 8, 'write "12:30:00"'),
    "a time as a text": ("venue: Hall", "venue: 20:30", 3, 'write "20:30"'),
    "a yes": ("venue: Hall", "venue: Hall\nrehearsal: yes", 4, "true or false"),
    "an anchor": ("kind: seated", "kind: &kind seated", 8, "& or !, which have a meaning of their own"),
    "an alias": ("venue: Hall", "venue: &v Hall\ntour: *v", 3, "& or !"),
    "a merge": ("venue: Hall", "venue: Hall\n<<: {name: x}", 4, "write them out"),
    "a tag": ("venue: Hall", "venue: !!str 5", 3, "put the text in quotes"),
    "a colon": ("name: Night", "name: Night: the end", 2, "must stand in quotes"),
    "a star": ("name: Night", "name: *Night*", 2, "must stand in quotes"),
    "two documents": ("venue: Hall", "venue: Hall\n---\na: 1", 4, "a file is one document"),
    "no value": ("venue: Hall", "venue:", 3, "venue: it is empty"),
    "no field": ("venue: Hall\n", "", 1, "venue: it is missing"),
    "another field": ("venue: Hall", "venue: Hall\nvenues: x", 4, "venues: there is no such field here"),
    "a number too many": ("rows: 4", "rows: 4.5", 8, "sections.0.rows: write"),
    "a price with decimals": ("price_minor: 3000", "price_minor: 30.00", 9, "write a whole number"),
    "a kind that is none": ("kind: ga", "kind: standing", 9, "'seated', 'ga'"),
    "a time without a zone": ("00:00Z ", "00:00 ", 5, "a date and a time with its offset"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "says"), MISREAD.values(), ids=MISREAD)
def test_what_means_something_else_is_refused(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    path = tmp_path / "event.yaml"
    assert FILE.count(old) == 1
    path.write_text(FILE.replace(old, new))
    with pytest.raises(event_files.BadEventFile) as refused:
        event_files.read(path)
    assert f"event.yaml:{line}: " in str(refused.value)
    assert says in str(refused.value)


def test_comments_and_plain_values_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "event.yaml"
    more = "# a line\nallotments: []   # none\ntaxes:   # to come\n  # later\n  []\n"
    path.write_text(
        "\ufeff"
        + FILE.replace("Night", '"Night #1: N\u00b0 1" # quoted').replace("5}", "5, pace: {guard: off}}")
        + more
    )
    event = event_files.read(path)
    assert (event.name, event.room.rate_per_s, event.room.pace.guard) == ("Night #1: N\u00b0 1", 5, "off")


VALUES = [
    "010", "0o10", "0x1F", "1_0", "1e3", "1.", ".5", "20:30", "NO", "yes", "off", "null", "~", "", "#1", "a #b", "-",
    "<<", "*a", "&a", "!a", "a: b", "2030-01-01", ".nan", "9" * 30, "5", "true", "N", "= x", "a\nb", "\ufeff", "é",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_what_is_written_is_read_as_the_same(value: str) -> None:
    for document in (
        {"a": value, value: [value]},
        {"n": 5, "f": 0.25, "g": 1e20, "none": None, "on": True, "x": [value, 1]},
    ):
        assert read_yaml(write_yaml(document)).value == document
        assert read_yaml(write_yaml(document, flow_style=None)).value == document


def test_a_deep_or_huge_text_is_refused_soon() -> None:
    for text in ("[" * 60 + "]" * 60, "- " * 60 + "a", "a: 1e999", "a: \x00"):
        with pytest.raises(BadYaml):
            read_yaml(text)


RICH: dict[str, Any] = {
    "event_id": "x", "name": "Night", "venue": "Hall", "currency": "EUR", "starts_at": "2030-01-01T20:00:00Z",
    "timezone": "Europe/Berlin", "rehearsal": True,
    "sales": {"hold_ttl_s": 60, "avoid_single_seats": True, "oversell": {"policy": "honour", "review_percent": 5},
              "tour": {"tour_id": "t", "tickets_per_customer": 4}},
    "sections": [
        {"section_id": "A", "name": "Left", "kind": "seated", "rows": 4, "seats_per_row": 5, "price_minor": 5000,
         "price_levels": [{"name": "Front", "rows": [1, 2], "price_minor": 7000}]},
        {"section_id": "B", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
    ],
    "allotments": [{"allotment_id": "h", "name": "House", "kind": "house", "opens_at": "2029-01-01T20:00:00Z",
                    "seats": ["A-1-1"], "rows": [{"section_id": "A", "rows": [2, 3]}],
                    "ga": [{"section_id": "B", "quantity": 5}]}],
    "map": {"size": [100, 100], "stage": {"at": [50, 5], "size": [10, 5]}, "sections": {
        "A": {"outline": [[0, 0], [9, 0], [9, 9]], "rows": {"at": [1, 1], "pitch": 1, "spacing": 1}},
        "B": {"outline": [[0, 0], [9, 0], [9, 9]]}}},
    "brand": {"name": "Us", "logo": "logo.svg", "accent": "#1a6b54", "help_url": "https://example.org/"},
    "room": {
        "queue_opens_at": "2029-01-01T20:00:00Z", "ordering": "fifo", "rate_per_s": 5, "burst": 4,
        "stock_coupling": True, "returning_share": 0.5, "rollout_percent": 10, "entry": {"signed_in_only": True},
        "gate": {"waiting_room": "https://a.example", "return_to": ["https://b.example"], "let_through": ["/a*"]},
        "friction": {"proof_of_work": "off", "busy_joins_per_s": 5},
        "pace": {"guard": "on", "rate_min": 1, "rate_max": 2},
        "lanes": [{"lane": 0, "name": "All"}, {"lane": 1, "name": "Club", "claim": {"name": "club", "value": "gold"}}],
    },
    "fees": [{"name": "Fee", "per": "ticket", "amount_minor": 50}], "taxes": [{"name": "VAT", "percent": "7.5"}],
    "checkout": {"background_percent": 50},
}  # fmt: skip
WRONG = [None, "x y!", "", 5, -7, 10**12, 0.123456, [], {}, ["a"], {"a": 1}, "\0", "x" * 5_000, True]
PROGRAMMERS_WORDS = re.compile(
    r"should|valid (string|integer|number)|pattern|Value error|type=|instance|Extra inputs|permitted|\^|\bNone\b"
    r"|str\b|int\b|dict|tuple|cannot be used here|other characters"
)


def variations(document: Any) -> Iterator[Any]:
    """The document with one place replaced, for every place and every wrong value."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        for other in (*WRONG, *variations(value)):
            changed = dict(document) if isinstance(document, dict) else list(document)
            changed[key] = other
            yield changed


def test_whatever_is_wrong_is_said_in_the_words_of_an_organiser() -> None:
    event_files.validated(Path("f"), YamlText(RICH), RICH)
    said = [says for document in variations(RICH) if (says := refusal(document))]
    assert len(said) > 1_000
    assert not [says for says in said if PROGRAMMERS_WORDS.search(says)]


def refusal(document: Any) -> str:
    try:
        event_files.validated(Path("f"), YamlText(None), document)
    except event_files.BadEventFile as refused:
        return str(refused)
    return ""


READ_BY_NOBODY_ELSE = {
    "onsale/strict_yaml.py", "onsale/capacity/coefficients.py", "onsale/deploy/monitoring_files.py",
}  # fmt: skip


def test_only_the_strict_reader_reads_what_people_write() -> None:
    """The others read files of this package, or write."""
    importers = {
        path.relative_to(ROOT).as_posix()
        for folder in ("onsale", "services")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import) and any(name.name == "yaml" for name in node.names)
    }
    assert importers == READ_BY_NOBODY_ELSE


def test_the_examples_are_read_strictly() -> None:
    for path in [*(ROOT / "onsale" / "examples").glob("*.yaml"), *(ROOT / "deploy").rglob("event*/*.yaml")]:
        assert isinstance(event_files.read(path), EventFile)


UNREADABLE = {
    "a minute of 61 seconds": b"starts_at: 2026-12-18T20:00:60Z\n",
    "a month of 99 days": b"starts_at: 2026-12-99\n",
    "a time that is none": b"starts_at: !!timestamp soon\n",
    "bytes that are none": b"name: !!binary x\n",
    "a mapping as a key": b"? {a: b}\n: c\n",
    "a list in itself": b"sections: &a [*a]\n",
    "many brackets": b"[" * 5_000,
    "no text": b"\xff\xfe\x00",
    "a tab": b"a:\n\tb: c\n",
    "nothing": b"",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_event_file_is_refused_by_a_sentence(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "event.yaml"
    path.write_bytes(text)
    with pytest.raises(event_files.BadEventFile, match=r"event\.yaml"):
        event_files.read(path)


GOOD = """event_id: arena
name: Arena
venue: Berlin
currency: {currency}
starts_at: 2030-01-01T20:00:00Z
sections:
  - {{section_id: {section_id}, name: Floor, kind: ga, capacity: 10, price_minor: 1000}}
"""


@pytest.mark.parametrize("currency", ["EUE", "XYZ", "XXX", "BGN", "eur"])
def test_a_currency_that_is_not_in_use_is_refused_with_its_line(tmp_path: Path, currency: str) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(GOOD.format(currency=currency, section_id="A"))
    with pytest.raises(event_files.BadEventFile, match=r"event\.yaml:4: currency: .*such as EUR"):
        event_files.read(path)
    path.write_text(GOOD.format(currency="HUF", section_id="A"))
    assert event_files.read(path).currency == "HUF"


def test_a_refusal_shows_no_regular_expression(tmp_path: Path) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(GOOD.format(currency="EUR", section_id="A-1").replace("arena", "-arena"))
    with pytest.raises(event_files.BadEventFile) as refused:
        event_files.read(path)
    assert "letters A-Z, digits and _" in str(refused.value)
    assert not set(r"^[]{}\$") & set(str(refused.value).replace(str(path), ""))
