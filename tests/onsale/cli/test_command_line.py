"""The command line: help for every command, one clear line for an error, exit codes; rooms, codes and stock.

The client of the admin API reads a list page by page. `onsale migrate`: one line for each service, exit codes, and a
check that changes nothing.
"""

import asyncio
import inspect
import os
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from onsale import imports
from onsale.admin_client import AdminClient
from onsale.cli.app import commands, loaded
from onsale.cli.events import print_audit
from onsale.errors import OperatorError
from onsale.local.engines import Engines, with_driver
from onsale.server import serve
from shared.features import CliCommand
from shared.postgres.schema_version import revisions
from shared.report.invariants import both_sold
from tests.support.engines.engines import run_in_thread, sql
from tests.support.running.command_line import Command
from tests.support.running.suite import RunningSuite

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
    assert "as A:1-3" in operate("stock", "block", event_id, "--rows", "A").stderr
    seats = tmp_path / "seats.csv"
    assert operate("stock", "export", event_id, "seats", str(seats)).returncode == 0
    assert len(seats.read_text().splitlines()) == 41
    again = operate("stock", "export", event_id, "seats", str(seats))
    assert (again.returncode, "File exists" in again.stderr) == (2, True)


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
