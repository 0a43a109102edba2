"""Every command of README and of the page of the API runs against the suite, in the order of the page."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from onsale.local.command import EXAMPLES
from tests.support.programs import find_program
from tests.support.running.suite import RunningSuite

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "docs" / "start" / "api-by-example.md"]
FEWER = (("--fans 2000", "--fans 40"), ("--fans 60", "--fans 12"), ("--arrive-over 20", "--arrive-over 2"))
TAKES_S = 110


@pytest.fixture
def folder(suite: RunningSuite, tmp_path: Path) -> Path:
    """A folder as that of a checkout in which the suite runs: its data, its programs, its example files."""
    for name in (".venv", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".onsale").symlink_to(suite.data_dir)
    flash = ["events", "apply", "deploy/events/flash.yaml", "--url", suite.url]
    assert run(tmp_path, f".venv/bin/onsale {' '.join(flash)} && .venv/bin/onsale room open flash-2026") == ""
    return tmp_path


def run(folder: Path, script: str) -> str:
    """Runs it as a shell would, and stops at the first command that fails; what it printed then."""
    result = subprocess.run(
        ["bash", "-c", f"set -eu\n{script}"], cwd=folder, capture_output=True, text=True, timeout=TAKES_S, check=False,
        env=os.environ | {"COLUMNS": "200", "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    return "" if result.returncode == 0 else f"{script}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"


@pytest.mark.parametrize(
    "path", [PAGES[0], *(pytest.param(path, marks=pytest.mark.proof) for path in PAGES[1:])], ids=lambda path: path.stem
)
def test_every_command_of_the_page_runs(folder: Path, suite: RunningSuite, path: Path) -> None:
    run_page(folder, suite, path)


def run_page(folder: Path, suite: RunningSuite, path: Path) -> None:
    """Fails unless every block of commands runs."""
    text = path.read_text()
    for name, content in re.findall(r"Save this as `([\w.]+)`:\n\n```\w+\n(.*?)```", text, re.S):
        (folder / name).write_text(content)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    assert blocks, "a page of commands has some"
    for block in blocks:
        script = "\n".join(line for line in block.splitlines() if not line.startswith("make "))
        for shown, run_as in (*FEWER, ("http://localhost:8000", suite.url)):
            script = script.replace(shown, run_as)
        assert run(folder, script) == ""


def test_make_run_starts_the_suite_with_two_events() -> None:
    """What `make run` would do once everything is installed."""
    make = find_program("make")
    assert make is not None
    printed = subprocess.run([make, "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    assert ".venv/bin/python -m onsale up --demo" in printed.stdout
    assert [path.is_file() for path in EXAMPLES] == [True, True]
