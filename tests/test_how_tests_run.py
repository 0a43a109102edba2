"""How the tests themselves run: new histories by a seed that is printed, and a rerun that hides nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import rerun_failed

ROOT = Path(__file__).parents[1]
FAILING = "from hypothesis import given, strategies as st\n\n@given(st.integers())\ndef test_it(n):\n    assert n < 0\n"


def ran(folder: Path, *options: str) -> tuple[str, list[str]]:
    """The seed that a run of a failing test printed, and what it tried."""
    environ = {name: value for name, value in os.environ.items() if name != "ONSALE_HYPOTHESIS_SEED"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options]
    environ["PYTHONPATH"] = str(ROOT)
    told = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False).stdout
    return re.findall(r"--hypothesis-seed=(\d+)", told)[-1], re.findall(r"n=(-?\d+)", told)


def test_each_run_has_a_seed_of_its_own_and_the_rerun_has_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("tests.support.seeds",)\n')
    first, _ = ran(tmp_path)
    assert ran(tmp_path, "--last-failed")[0] == first
    assert ran(tmp_path)[0] != first
    assert ran(tmp_path, "--hypothesis-seed=7")[0] == "7"


@pytest.mark.parametrize(("failed", "looks"), [(0, False), (1, True), (6, True), (7, False)])
def test_a_rerun_is_for_a_few_and_keeps_their_names(
    failed: int, looks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    rerun_failed.FAILED.parent.mkdir(parents=True)
    rerun_failed.FAILED.write_text(json.dumps({f"tests/test_a.py::test_{n}": True for n in range(failed)}))
    assert rerun_failed.main() == (0 if looks else 1)
    assert len(asked) == looks
    assert f"Failed: {failed}" in capsys.readouterr().out
    kept = rerun_failed.HISTORY.read_text().splitlines() if rerun_failed.HISTORY.exists() else []
    assert len(kept) == (failed if looks else 0)
