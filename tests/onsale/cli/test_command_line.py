"""The command line: help for every command, one clear line for an error, exit codes; rooms, codes and stock.

The client of the admin API reads a list page by page. `onsale migrate`: one line for each service, exit codes, and a
check that changes nothing.

An event file means one thing: what it says.

Anything else is refused, with its line and what to write instead; so is one that cannot be read, by a sentence that
names it. It is applied to all services or to none, and a dry run reports what it would change.
"""

import ast
import asyncio
import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from onsale import event_files, imports
from onsale.admin_client import AdminClient
from onsale.cli.app import commands, loaded
from onsale.cli.events import print_audit
from onsale.errors import OperatorError
from onsale.local.engines import Engines, with_driver
from onsale.server import serve
from onsale.strict_yaml import BadYaml, YamlText, read_yaml, write_yaml
from shared.contracts.event_file import EventFile
from shared.features import CliCommand
from shared.postgres.schema_version import revisions
from shared.report.invariants import both_sold
from tests.support.engines.engines import run_in_thread, sql
from tests.support.running.program import Command, event_file
from tests.support.running.suite import RunningSuite, fan_of

ROOT = Path(__file__).parents[3]
HELP_MIN = 20
ARENA = ROOT / "deploy" / "events" / "arena.yaml"


def test_every_command_has_a_help_text_and_so_has_each_of_its_options(onsale: Command) -> None:
    for entry in commands():
        command = loaded(entry)
        for one in (command, *getattr(command, "commands", {}).values()):
            assert len(one.help or "") > HELP_MIN, one.name
            assert all(each.help for each in one.params if each.param_type_name == "option"), one.name
    for words in (["room"], ["room", "set"], ["up"]):
        result = onsale(*words, "--help")
        assert (result.returncode, len(result.stdout) > 200) == (0, True)


def test_the_version_is_that_of_the_package(onsale: Command) -> None:
    result = onsale("--version")
    assert (result.returncode, result.stdout) == (0, f"onsale {metadata.version('onsale')}\n")


def test_a_port_in_use_is_reported_in_one_line(onsale: Command, tmp_path: Path) -> None:
    with socket.socket() as socket_in_use:
        socket_in_use.bind(("127.0.0.1", 0))
        socket_in_use.listen()
        port = str(socket_in_use.getsockname()[1])
        result = onsale("up", "--port", port, "--data-dir", str(tmp_path / "data"))
    assert result.returncode == 2
    assert result.stderr.strip().splitlines() == [
        f"onsale: Port {port} on 127.0.0.1 cannot be used: Address already in use."
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sections:\n  - section_id: A\n    kind: seated\n    rows: many\n", ":4: sections.0.rows:"),
        ("event_id: [", "not YAML"),
        ("a: 1\nevent_id: x", ":1: a: there is no such field here"),
        ("- 1", "not an event file"),
        ("", "not an event file"),
    ],
    ids=["rows: many", "no end", "unknown field", "a list", "empty"],
)
def test_an_error_in_an_event_file_is_reported_with_its_line_and_field(
    onsale: Command, tmp_path: Path, text: str, error: str
) -> None:
    path = tmp_path / "event.yaml"
    path.write_text(text)
    result = onsale("events", "apply", str(path))
    assert (result.returncode, result.stderr.startswith(f"onsale: {path}:"), error in result.stderr) == (2, True, True)


def test_a_suite_that_does_not_answer_is_reported_in_one_line(onsale: Command, tmp_path: Path) -> None:
    result = onsale("room", "show", "arena-2026", "--url", "http://127.0.0.1:9", "--data-dir", str(tmp_path))
    assert result.returncode == 2
    assert "is `onsale up` running?" in result.stderr


def test_an_operator_sets_rate_rollout_and_state_of_a_room(operate: Command) -> None:
    assert operate("room", "set", "arena-2026", "--rate", "77", "--max-active", "500").returncode == 0
    assert operate("room", "set", "arena-2026", "--rollout", "60").stdout.strip() == "arena-2026: rollout_percent = 60"
    assert operate("room", "set", "arena-2026", "--rollout", "100").returncode == 0
    output = operate("room", "show", "arena-2026").stdout
    assert ("77" in output, "500" in output) == (True, True)
    assert operate("room", "pause", "arena-2026").returncode == 0
    assert "paused" in operate("room", "show", "arena-2026").stdout
    assert operate("room", "resume", "arena-2026").returncode == 0
    assert operate("room", "set", "arena-2026", "--rate", "50", "--max-active", "2000").returncode == 0
    assert operate("room", "set", "arena-2026").returncode == 2
    assert operate("room", "show", "nowhere").returncode == 2


@pytest.mark.parametrize(("orders", "reservations", "holds"), [(2, 2, True), (2, 3, True), (3, 2, False)])
def test_an_order_without_a_sold_reservation_fails_the_audit(orders: int, reservations: int, holds: bool) -> None:
    row = both_sold(orders, reservations)
    assert row.holds is holds
    assert print_audit(Console(quiet=True), [row]) is holds


def test_applying_an_event_file_again_changes_nothing(operate: Command) -> None:
    assert operate("events", "apply", str(ARENA)).returncode == 0
    before = operate("room", "history", "arena-2026").stdout
    applied = operate("events", "apply", str(ARENA))
    assert applied.returncode == 0, applied.stderr
    assert operate("room", "history", "arena-2026").stdout == before


def test_only_the_owner_can_read_secret_files(suite: RunningSuite) -> None:
    for name in ("admin.key", "keys.json", "engines.json"):
        assert (suite.data_dir / name).stat().st_mode & 0o077 == 0


def test_an_operator_plans_admits_drains_paces_and_resets_a_room(operate: Command, suite: RunningSuite) -> None:
    event_id = asyncio.run(suite.open_event())
    assert "Nobody waits" in operate("room", "plan", event_id, "--rate", "100").stdout
    assert operate("room", "admit", event_id, "3").stdout == f"{event_id}: 0 of 3 called\n"
    assert operate("room", "message", event_id, "Doors at eight.").returncode == 0
    assert operate("room", "rebuild", event_id).returncode == 0
    assert operate("room", "drain", event_id, "--reason", "nearly over").returncode == 0
    assert operate("room", "open", event_id).returncode == 0
    assert operate("room", "message", event_id, "").returncode == 0
    result = operate("room", "pace", event_id, "--autotune", "observe", "--rate-min", "5", "--rate-max", "90")
    assert result.returncode == 0, result.stderr
    assert operate("room", "pace", event_id, "--guard", "perhaps").returncode == 2
    assert operate("room", "pace", event_id).returncode == 2
    assert operate("room", "pace", event_id, "--autotune", "off").returncode == 0
    assert operate("room", "reset", event_id, "--yes").returncode == 0
    history = operate("room", "history", event_id, "--count", "12").stdout
    for text in (
        "nearly over",
        "state: open → draining",
        "message: None → Doors at eight.",
        "epoch: 1 → 2",
        "admit: - → 3",
    ):
        assert text in history, history
    newest = operate("room", "history", event_id, "--count", "1").stdout
    cursor = newest.split("more: --before ")[1].split()[0]
    assert "nearly over" in operate("room", "history", event_id, "--before", cursor).stdout


def test_an_operator_changes_the_stock(operate: Command, suite: RunningSuite, tmp_path: Path) -> None:
    event_id = asyncio.run(suite.open_event())
    places = ("--seat", "A-1-1", "--rows", "A:2-3", "--ga", "GA1:5")
    blocked = operate("stock", "block", event_id, *places, "--reason", "camera")
    assert blocked.stdout.strip() == f"{event_id}: block", blocked.stderr
    assert "26" in operate("stock", "show", event_id).stdout, "blocked places"
    assert operate("stock", "unblock", event_id, *places).returncode == 0
    assert "nothing to change" in operate("stock", "unblock", event_id, "--seat", "A-1-1").stdout
    assert operate("stock", "resize", event_id, "GA1", "60").returncode == 0
    wrong_kind = operate("stock", "resize", event_id, "A", "1")
    assert (wrong_kind.returncode, "no section A of that kind" in wrong_kind.stderr) == (2, True)
    assert operate("stock", "open", event_id, "nobody").returncode == 2
    for allotment_id, more in (("club", {"codes": ["CLUB"], "lanes": [2]}), ("house", {})):
        body = {"name": allotment_id, "kind": "channel", "seats": [], **more}
        url = f"{suite.url}/admin/inventory/events/{event_id}/allotments/{allotment_id}"
        assert httpx.put(url, json=body, headers={"authorization": f"Bearer {suite.admin_key}"}).is_success
    moved = operate(
        "stock", "move", event_id, "--to", "club", "--rows", "A:2", "--ga", "GA1:5", "--reason", "more of them"
    )
    assert moved.stdout.strip() == f"{event_id}: move", moved.stderr
    assert operate("stock", "move", event_id, "--from", "club", "--to", "house", "--ga", "GA1:2").returncode == 0
    shown = operate("stock", "show", event_id).stdout
    assert "by 1 codes and lanes 2: 13 available, 0 held, 0 sold" in shown, shown
    assert operate("stock", "move", event_id, "--ga", "GA1:2").returncode == 2
    assert "as A:1-3" in operate("stock", "block", event_id, "--rows", "A").stderr
    seats = tmp_path / "seats.csv"
    assert operate("stock", "export", event_id, "seats", str(seats)).returncode == 0
    assert len(seats.read_text().splitlines()) == 41
    again = operate("stock", "export", event_id, "seats", str(seats))
    assert (again.returncode, "File exists" in again.stderr) == (2, True)


def test_an_operator_releases_wheelchair_places(operate: Command, suite: RunningSuite) -> None:
    section = {
        "section_id": "A",
        "name": "Block A",
        "kind": "seated",
        "rows": 2,
        "seats_per_row": 5,
        "price_minor": 100,
    }
    traits = {"wheelchair": ["2-1"], "companion": ["2-2"]}
    event_id = asyncio.run(suite.open_event(sections=[{**section, "traits": traits}]))
    before = operate("stock", "show", event_id).stdout
    assert "when an operator releases them" in before
    assert re.search(r"wheelchair\W+all\W+1\W+1\W+0\W+0", before), before
    released = operate("stock", "release-accessible", event_id, "--reason", "the last day")
    assert released.stdout.strip() == f"{event_id}: release-accessible", released.stderr
    assert "nothing to change" in operate("stock", "release-accessible", event_id).stdout
    assert "are offered to everybody since" in operate("stock", "show", event_id).stdout
    without = operate("stock", "release-accessible", asyncio.run(suite.open_event()))
    assert (without.returncode, "no wheelchair or companion places" in without.stderr) == (2, True)


@pytest.mark.parametrize("entry", commands(), ids=lambda entry: entry.name)
def test_the_list_of_commands_says_what_each_says_of_itself(entry: CliCommand) -> None:
    first, _, _ = inspect.cleandoc(loaded(entry).help or "").partition("\n\n")
    assert entry.help == " ".join(first.split())


HEAVY = {"fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "asyncpg", "redis", "aiohttp", "pydantic_settings",
         "prometheus_client", "opentelemetry", "services"}  # fmt: skip
WORKS_ON_DATABASES = {"onsale.backup.command": {"sqlalchemy", "asyncpg", "redis", "pydantic_settings",
                                                "prometheus_client", "opentelemetry"},
                      "onsale.maintenance.migrations": {"asyncpg", "pydantic_settings"},
                      "onsale.maintenance.metrics_reference": {"prometheus_client"}}  # fmt: skip


IMPORT_EACH = """
import importlib, os, sys
import onsale.admin_client, onsale.cli.app  # what all commands have, once

for module in {modules!r}:
    if not os.fork():
        importlib.import_module(module)
        print(module, *sys.modules, flush=True)
        os._exit(0)
    assert os.waitpid(-1, 0)[1] == 0, module
"""


def test_a_command_imports_no_service_framework_and_no_database_driver() -> None:
    """They take longer to import than a command takes to ask the suite."""
    modules = sorted({entry.where.partition(":")[0] for entry in commands()})
    command = [sys.executable, "-P", "-c", IMPORT_EACH.format(modules=modules)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert len(shown) == len(modules)
    for module, *imported in map(str.split, shown):
        heavy = HEAVY - WORKS_ON_DATABASES.get(module, set())
        assert heavy & {name.partition(".")[0] for name in imported} == set(), module


ASKING = [["stock", "show", "x"], ["order", "find", "x"], ["flow", "x"], ["audit", "x"], ["doctor"],
          ["events", "apply", str(ARENA)]]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [["room", "show", "x"], *(pytest.param(one, marks=pytest.mark.proof) for one in ASKING)],
    ids=" ".join,
)
def test_a_command_imports_none_of_them_until_it_asks_the_suite(arguments: list[str], tmp_path: Path) -> None:
    code = (
        f"import sys, onsale.imports; sys.argv[1:] = {[*arguments, '--url', 'http://127.0.0.1:1']!r}\n"
        "client = onsale.imports.import_module('onsale.admin_client')\n"
        "async def send(*_, **__): print('MODULES', *sys.modules); sys.stdout.flush(); import os; os._exit(0)\n"
        "client.AdminClient.send = send\nimport onsale.__main__"
    )
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _, asked, modules = shown.stdout.partition("MODULES")
    assert asked
    unused = {"click", "pygments"}  # of httpx' own command line
    assert (HEAVY | unused) & {name.partition(".")[0] for name in modules.split()} == set()


def test_a_plan_imports_no_client_of_a_suite() -> None:
    code = (
        "import sys; sys.argv[1:] = ['plan', '--fans', '100', '--tickets', '50']\n"
        "try: import onsale.__main__\nexcept SystemExit: print('MODULES', *sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    plan, ended, modules = shown.stdout.partition("MODULES")
    assert plan
    assert ended
    assert (HEAVY | {"httpx", "pydantic"}) & {name.partition(".")[0] for name in modules.split()} == set()


def test_an_import_leaves_out_what_libraries_can_do_without() -> None:
    code = (
        "import sys, onsale.imports as imports; imports.import_module('onsale.local.up'); print(*sys.modules)\n"
        "import importlib; importlib.import_module('httpx._main')"
    )
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"httpx", "redis"} < set(shown.stdout.split())
    assert not {*imports.UNUSED, "pygments"} & set(shown.stdout.split())


def test_help_imports_neither_services_nor_clients_of_databases() -> None:
    code = (
        "import sys, onsale.cli.app as a; sys.argv[1:] = ['--help']\n"
        "try: a.main()\nexcept SystemExit: print('MODULES', *sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"sqlalchemy", "redis", "fastapi", "httpx", "asyncpg", "pydantic", "services"}
    assert not heavy & {name.partition(".")[0] for name in shown.stdout.partition("MODULES")[2].split()}
    assert all(entry.name in shown.stdout for entry in commands() if " " not in entry.name)


ENTRY = {
    "at": "2027-03-05T19:30:00Z", "actor": "ann", "role": None, "action": "open", "subject": "event:e", "reason": None,
    "version": 1, "before": None, "after": None,
}  # fmt: skip


def answer(request: httpx.Request) -> httpx.Response:
    """Two pages; whoever asks for a third gets a problem."""
    before = request.url.params.get("before")
    if before not in (None, "2"):
        return httpx.Response(404, json={"detail": "no such page"})
    following = f"{request.url.path}?before=2&page_size=1" if before is None else None
    return httpx.Response(200, json={"changes": [{**ENTRY, "id": 2 if before is None else 1}], "next": following})


async def test_pages_are_read_until_the_last() -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        admin = AdminClient(client, "http://suite", "key")
        pages = [page async for page in admin.pages("list_queue_changes", query={"page_size": 1}, event_id="e")]
        assert [entry.id for page in pages for entry in page.changes] == [2, 1]
        with pytest.raises(OperatorError, match="no such page"):
            await anext(admin.pages("list_queue_changes", query={"before": 7}, event_id="e"))


def test_migrate_check_reports_pending_migrations_and_changes_nothing(
    onsale: Command, monkeypatch: pytest.MonkeyPatch, engines: Engines, migrated: str
) -> None:
    server = with_driver(engines.postgres_url).rsplit("/", 1)[0]
    result = onsale("migrate", "--check", "--postgres-url", f"{server}/{migrated}")
    assert (result.returncode, result.stdout.count("up to date")) == (0, 4)

    run_in_thread(sql(engines, "create database unmigrated"))
    monkeypatch.setenv("ONSALE_POSTGRES_URL", f"{server}/unmigrated")
    for _ in range(2):
        result = onsale("migrate", "--check")
        assert result.returncode == 1
        assert f"orders: is to go to {revisions('orders')[-1]} (at nothing)" in result.stdout
    run_in_thread(sql(engines, "drop database unmigrated with (force)"))
    monkeypatch.delenv("ONSALE_POSTGRES_URL")
    assert "The database of queue is not set" in onsale("migrate").stderr


def test_invalid_settings_are_reported_in_one_line_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSALE_ENVIRONMENT", "production")
    with pytest.raises(OperatorError, match=r"^queue: in production these secrets must be set: checkout"):
        serve.create(["queue"])
    monkeypatch.setenv("ONSALE_PORT", "70000-secret")
    with pytest.raises(OperatorError, match=r"^queue: port: This must be a whole number") as refused:
        serve.create(["queue"])
    assert "secret" not in str(refused.value)


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
    "onsale/strict_yaml.py", "onsale/capacity/sale.py", "onsale/deploy/monitoring_files.py",
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
