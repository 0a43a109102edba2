"""A guard: product code that keeps one promise, how it is taken out, and the test that turns red without it.

Where the tests lie that the guards name, and the tier of each: the cheapest `make` target that runs it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

AREAS = ("gateway", "queue", "inventory", "orders", "notifier", "shared", "onsale", "features", "web")


@dataclass(frozen=True)
class Guard:
    """`keeps`: the promise, in the user's words. `old` occurs once in the file `path`; with `new` in its place the
    guard is out and everything else works as before. `test` is the name of the cheapest test that fails then. It is
    found wherever it lies, so moving it changes nothing here; where two tests share a name, the end of the file's path
    stands before it (`api/test_forms.py::test_…`).
    """

    keeps: str
    path: str
    old: str
    new: str
    test: str

    @property
    def area(self) -> str:
        """The service, or what it is instead of one: `shared`, `onsale`, `features`, `web`."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "services" else parts[0]


ROOT = Path(__file__).parents[2]
TIERS = ("fast", "test", "proof")
FAST = re.compile(r"^FAST := ((?:.*\\\n)*.*)$", re.M)
ENGINES = {"redis", "postgres", "journey", "browser", "proof"}  # NO_ENGINES of the Makefile
TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.M)


@cache
def all_tests() -> Mapping[str, tuple[str, ...]]:
    """The files of each test, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for folder in ("tests", "features", "proof"):
        for file in sorted((ROOT / folder).rglob("test_*.py")):
            for name in TEST.findall(file.read_text()):
                found[name] = (*found.get(name, ()), file.relative_to(ROOT).as_posix())
    return found


def node_id(test: str) -> str:
    """The node id of a test that a guard names. Raises `LookupError` unless exactly one is meant."""
    ending, _, name = test.rpartition("::")
    files = [file for file in all_tests().get(name, ()) if file.endswith(ending)]
    if len(files) != 1:
        raise LookupError(f"{test}: {'found in ' + ', '.join(files) if files else 'no such test'}")
    return f"{files[0]}::{name}"


def tiers(node_ids: Iterable[str]) -> dict[str, str]:
    """The tier of each of these tests, by its marks, as pytest collects it."""
    wanted = sorted(set(node_ids))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-P", "-m", "pytest", "-q", "--collect-only", "-m", "", "-p", "proof.guards.report"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "ONSALE_GUARD_REPORT": str(report)}
        files = sorted({node.partition("::")[0] for node in wanted})
        subprocess.run([*command, *files], cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
        marks = json.loads(report.read_text())["marks"]
    return {node: _tier(node, set(marks[node])) for node in wanted}


def _tier(node: str, marks: set[str]) -> str:
    if "proof" in marks:
        return "proof"
    return "fast" if node.startswith(_fast_folders()) and not marks & ENGINES else "test"


def _fast_folders() -> tuple[str, ...]:
    found = FAST.search((ROOT / "Makefile").read_text())
    assert found, "the Makefile has no FAST"
    return tuple(f"{folder}/" for folder in found[1].replace("\\", " ").split())
