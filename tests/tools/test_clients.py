"""The generated parts of the clients leave nothing out by accident.

The Grafana boards are those that the table makes; every expression is one of Prometheus about metrics that exist.
"""

import json
import re
import subprocess
from pathlib import Path

import yaml

from features.pages.gateway.documents import PAGES
from onsale.client import Client, Operator
from onsale.maintenance import metrics_reference
from shared.contracts.admin.operation import FILE, models
from shared.contracts.admin.operator_calls import OPERATIONS
from tests.support.programs import need
from tools import boards
from tools.clients import fan_code, operator_code
from tools.clients.fan_code import operations

FANS, OPERATORS = (json.loads((PAGES / "openapi" / f"{each}.json").read_text()) for each in ("fans", "operators"))
ROOT = Path(__file__).parents[2]
BY_NAME = (
    re.compile(r'\badmin\.(?:call|pages)\(\s*"(\w+)"'), re.compile(r'add_action\(\s*app, "[\w-]+", "(\w+)"'),
)  # fmt: skip


def test_every_operation_has_a_method_or_a_reason_to_have_none() -> None:
    documented = {f"{verb} {path}" for path, verb, _ in operations(FANS)}
    assert documented == fan_code.NAMES.keys() | fan_code.NOT_FOR_CLIENTS
    assert all(callable(getattr(Client, name)) for name in fan_code.NAMES.values())


def test_every_operation_for_operators_has_a_row_and_a_method() -> None:
    documented = {operation["operationId"]: f"{verb} {path}" for path, verb, operation in operations(OPERATORS)}
    rows = {name: f"{row.method.lower()} {row.path}" for name, row in OPERATIONS.items()}
    of_fans = {name: f"get {path}" for path, (name, _) in operator_code.OF_FANS.items()}
    assert (
        rows == {name: call for name, call in documented.items() if name not in operator_code.NOT_FOR_CLIENTS} | of_fans
    )
    assert all(callable(getattr(Operator, name)) for name in OPERATIONS)


def test_every_model_of_a_row_is_found() -> None:
    for row in OPERATIONS.values():
        for names in {row.answer, row.body} - {None, FILE}:
            assert models(str(names)).json_schema()


def test_what_is_called_by_its_name_is_an_operation() -> None:
    sources = [
        path.read_text() for top in ("onsale", "services", "shared", "features") for path in (ROOT / top).rglob("*.py")
    ]
    named = {name for source in sources for pattern in BY_NAME for name in pattern.findall(source)}
    assert {"rebuild_room", "list_events_on_sale"} <= named <= OPERATIONS.keys()


EXPRESSIONS = {
    f"{name}:{panel.title}": panel.expr.replace("$event", ".*")
    for name, (_, panels) in boards.BOARDS.items()
    for panel in panels
}
METRIC = re.compile(r"\b(?:onsale|gateway|queue|inventory|orders|notifier)_[a-z_]+\b")


def test_the_boards_are_those_of_the_table() -> None:
    assert {path.stem for path in boards.FOLDER.glob("*.json")} == boards.BOARDS.keys()
    for name in boards.BOARDS:
        assert json.loads((boards.FOLDER / f"{name}.json").read_text()) == boards.board(name), "make boards"


def test_every_metric_on_a_board_exists() -> None:
    known = {entry.name for entry in metrics_reference.catalogue()}
    for title, expression in EXPRESSIONS.items():
        outside_braces = re.sub(r"\{[^}]*\}", "", expression)
        named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(outside_braces)}
        assert named <= known, title


def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"board:{n}", "expr": expression} for n, expression in enumerate(EXPRESSIONS.values())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run([need("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
