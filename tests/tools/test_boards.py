"""The Grafana boards are those that the table makes; every expression is one of Prometheus about metrics that exist."""

import json
import re
import subprocess
from pathlib import Path

import yaml

from onsale.maintenance import metrics_reference
from tests.support.programs import need
from tools import boards

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
