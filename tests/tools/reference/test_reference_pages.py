"""The reference pages are those that the code writes, and name everything there is; every decision has its form."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from onsale.imports import import_module
from onsale.maintenance.metrics_reference import catalogue as metrics
from shared.alarms import ALARMS
from shared.features import package_of
from shared.routes import SERVICES, SERVICES_WITH_TABLES, Service
from shared.web.api_document import operations
from shared.web.parts import with_settings_of_parts
from tools.problem_catalogue import catalogue as problems
from tools.reference import commands, decisions, endpoints, events, frames, redis_keys, settings, tables
from tools.reference.pages import PAGES, written

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CODE = [
    path for top in ("services", "shared", "onsale", "features") for path in (ROOT / top).rglob("*.py")
    if "tests" not in path.relative_to(ROOT).parts
]  # fmt: skip


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == written(name), "make api-documents"


def test_a_list_of_numbers_is_separated_by_commas_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [(service, import_module(f"{package_of(service)}.settings").Settings) for service in SERVICES]
    services = [(service, with_settings_of_parts(given, service)) for service, given in own]
    lists = [
        (service, name, given)
        for service, given in services
        for name, field in given.model_fields.items()
        if isinstance(field.default, tuple) and field.default and isinstance(field.default[0], int | float)
    ]
    assert [(service, name) for service, name, _ in lists] == [("orders", "webhook_backoff_s")]
    for service, name, given in lists:
        monkeypatch.setenv(f"{service.upper()}_{name.upper()}", "7, 0.5")
        assert getattr(given(), name) == (7, 0.5)


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_has_a_row_and_a_meaning(service: Service) -> None:
    shown, parts = page("settings.md"), list[Any]([*settings.PARTS.values(), *settings.SHARED])
    for name, field in settings.fields(service).items():
        assert field.description, name
        own = f"`{service.upper()}_{name.upper()}`" in shown
        of_several = any(name in part.model_fields for part in parts)
        assert own or (of_several and f"`ONSALE_{name.upper()}`" in shown), name


def test_every_variable_that_the_code_reads_has_a_row() -> None:
    shown = page("settings.md")
    for path in CODE:
        for name in re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", path.read_text()):
            assert f"`{name}`" in shown or name in ("PATH",), f"{name} in {path}"


def test_every_metric_alarm_problem_command_and_endpoint_has_a_row() -> None:
    assert [entry.name for entry in metrics() if f"| `{entry.name}` |" not in page("metrics.md")] == []
    assert [alarm.name for alarm in ALARMS if f"| [{alarm.name}](" not in page("alarms.md")] == []
    assert [entry["slug"] for entry in problems() if f"`/problems/{entry['slug']}`" not in page("problems.md")] == []
    assert [name for name, _ in commands.commands() if f"### onsale {name}\n" not in page("cli.md")] == []
    for readers in ("fans", "operators"):
        for path, method, _ in operations(endpoints.document(readers)):
            assert f"| `{method.upper()}` | `{path}` |" in page("openapi.md")


def test_every_option_of_a_command_says_what_it_is() -> None:
    for name, command in commands.commands():
        assert [each.name for each in command.params if not each.help] == [], name


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_every_table_and_column_has_a_row_and_a_meaning(service: Service) -> None:
    meanings, shown = tables.Meanings.of(service), page("tables.md")
    for table in tables.tables(service):
        assert tables.meaning(meanings, table), table.name
        part = shown.split(f"### {service}.{table.name}\n")[1].split("\n### ")[0]
        for column in table.c:
            assert f"| `{column.name}` |" in part
            assert tables.meaning(meanings, table, column), f"{table.name}.{column.name}"


@pytest.mark.parametrize("service", SERVICES_WITH_TABLES)
def test_a_meaning_has_its_column(service: Service) -> None:
    columns = {(table.name, "") for table in tables.tables(service)}
    columns |= {(table.name, column.name) for table in tables.tables(service) for column in table.c}
    everywhere = {column.name for each in SERVICES_WITH_TABLES for table in tables.tables(each) for column in table.c}
    meanings = tables.Meanings.of(service)
    assert meanings.own.keys() - columns <= {
        key for key in meanings.own if key[0] in ("audit_log", "outbox_batch", "outbox_cursor")
    }
    assert meanings.everywhere.keys() <= everywhere


def pattern(key: str) -> str:
    """A key of the page or of the code, each value as a star."""
    return re.sub(r"\{\w+\}|[A-Z]+(?:_[A-Z]+)?|0…2", "*", key)


def keys_in_code() -> Iterator[tuple[str, str]]:
    """The pattern of every key that a format string in the code makes, and where."""
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
                made = re.sub(r"\{?\*\}?", "*", "".join(parts))
                if re.match(r"(gateway|queue|inventory|console|show|log):[*a-z]", made):
                    yield made, f"{path.name}:{node.lineno}"


def test_every_redis_key_of_the_code_has_a_row() -> None:
    shown = {pattern(key.pattern) for part in redis_keys.keys().values() for key in part}
    channels = {pattern(channel) for channel in frames.CHANNELS.values()}
    for made, where in keys_in_code():
        begins = made.removesuffix(":") + ":"
        assert made in shown | channels or any(known.startswith(begins) for known in shown), f"{where}: {made}"


def test_the_scripts_take_keys_of_the_types_on_the_page() -> None:
    for service, heading in (("queue", "The line"), ("inventory", "The stock")):
        kinds = {re.split(r"[:}]", key.pattern.removesuffix(":0…2").removesuffix(":SECTION_ID"))[-1]: key.kind
                 for key in redis_keys.keys()[heading]}  # fmt: skip
        for script, taken in redis_keys.scripts(service).items():
            for name, kind in taken.items():
                if kind not in ("", "list", "prefix", "text"):
                    assert kinds[name] == kind, f"{script}: {name}"


def _first_argument(call: ast.Call) -> set[str]:
    return {str(kind.value) for kind in call.args[:1] if isinstance(kind, ast.Constant)}


def _keywords(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg}


def test_every_event_of_the_code_has_a_row() -> None:
    known = {name for name in events.TYPES if not name.startswith("reservation.")}
    kinds = get_args(import_module("services.inventory.store.reservations").EventKind)
    assert events.TYPES.keys() - known == {f"reservation.{kind}" for kind in kinds}
    for service, aggregate in (("orders", "order"), ("queue", "place")):
        calls = [node for path in CODE if path.is_relative_to(ROOT / "services" / service)
                 for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".emit")]  # fmt: skip
        kinds_of = {"order": _first_argument, "place": _keywords}[aggregate]
        found = {kind for call in calls for kind in kinds_of(call)}
        assert len(found) >= 3
        assert {f"{aggregate}.{kind}" for kind in found} <= known


def test_the_fields_of_every_frame_have_a_meaning() -> None:
    for name, example in frames.notifier_examples().items():
        assert set(example) == set(frames.EVENTS[name][1]), name
    module = import_module("features.console.streams")
    encoders = {
        name for name, made in inspect.getmembers(module, inspect.isfunction) if made.__module__ == module.__name__
    }
    assert set(frames.console_messages()) == {f"`{name}`" for name in encoders if not name.startswith("_")}


RECORDS = sorted(decisions.FOLDER.glob("0*.md"))
STATUS = re.compile(r"proposed|accepted(, superseded in part by \d{4}(, \d{4})*)?|superseded by \d{4}")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_a_record_has_status_date_and_the_four_headings(path: Path) -> None:
    record = decisions.Record.read(path)
    assert record.number == path.name[:4]
    assert f"# {record.number} · {record.title}\n" in path.read_text().splitlines(keepends=True)
    assert STATUS.fullmatch(record.status), record.status
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", record.date)
    text = path.read_text()
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == decisions.HEADINGS
    options = text.split("## Considered options\n")[1].split("\n## ")[0]
    assert options.strip().startswith("- **Chosen:** ")
    assert len(re.findall(r"^- ", options, re.M)) >= 2, "something it was chosen over"


def test_a_record_that_supersedes_another_is_later() -> None:
    for record in decisions.records():
        for later in re.findall(r"\d{4}", record.status):
            assert later > record.number
            assert list(decisions.FOLDER.glob(f"{later}-*.md"))


def test_no_two_records_have_one_number() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len(numbers) == len(set(numbers))
