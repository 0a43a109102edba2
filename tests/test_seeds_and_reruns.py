"""Runs of tests print their seed, what to install for skipped tests and what each took; a rerun hides no failure."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import durations, rerun_failed

ROOT = Path(__file__).parents[1]
FAILING = "from hypothesis import given, strategies as st\n\n@given(st.integers())\ndef test_it(n):\n    assert n < 0\n"


def output_of_pytest(folder: Path, *options: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "ONSALE_HYPOTHESIS_SEED"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options]
    environ["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False).stdout


def run_pytest(folder: Path, *options: str) -> tuple[str, list[str]]:
    """The seed that a run of the failing test printed, and the values it tried."""
    output = output_of_pytest(folder, *options)
    return re.findall(r"--hypothesis-seed=(\d+)", output)[-1], re.findall(r"n=(-?\d+)", output)


@pytest.mark.proof
def test_each_run_has_a_new_seed_and_a_rerun_of_failures_uses_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("tests.support.runs.seeds",)\n')
    first, _ = run_pytest(tmp_path)
    assert run_pytest(tmp_path, "--last-failed")[0] == first
    assert run_pytest(tmp_path)[0] != first
    assert run_pytest(tmp_path, "--hypothesis-seed=7")[0] == "7"


@pytest.mark.proof
def test_a_run_says_once_what_to_install_for_the_tests_that_were_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(
        "from tests.support import programs\n\n"
        "@programs.needs('no-such')\ndef test_marked():\n    pass\n\n"
        "def test_asking():\n    programs.need('no-such')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from tests.support.programs import pytest_terminal_summary\n")
    said = output_of_pytest(tmp_path, "-n", "1")
    assert said.count("2 tests were skipped; they run after: apt-get install no-such") == 1, said
    (tmp_path / "test_two.py").write_text("def test_nothing():\n    pass\n")
    assert "skipped" not in output_of_pytest(tmp_path)


@pytest.mark.parametrize(
    ("ci", "failed", "reruns"),
    [("true", 0, False), ("true", 1, True), ("true", 3, True), ("true", 4, False), ("", 1, False)],
)
def test_only_ci_reruns_a_few_failures_and_names_them_at_its_end(
    ci: str,
    failed: int,
    reruns: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands: list[tuple[str, ...]] = []

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(subprocess, "run", run)
    rerun_failed.FAILED.parent.mkdir(parents=True)
    names = [f"tests/test_a.py::test_{n}" for n in range(failed)]
    rerun_failed.FAILED.write_text(json.dumps(dict.fromkeys(names, True)))
    assert rerun_failed.main() == (0 if reruns else 1)
    assert len(commands) == reruns
    said = capsys.readouterr().out.split()
    assert said[-failed:] == names if reruns else said == []


def test_the_slowest_tests_are_listed_first_and_summed_by_file_folder_worker_and_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.jsonl")
    assert durations.main() == 1
    assert "make test" in capsys.readouterr().out
    rows = [
        {
            "test": f"tests/a/test_{name}.py::test_it",
            "wall_s": wall_s,
            "processor_s": 0.25,
            "worker": worker,
            "tier": tier,
        }
        for name, wall_s, worker, tier in (("x", 1.0, "gw0", "engines"), ("y", 2.5, "gw1", "no engine"))
    ]
    durations.FILE.write_text("\n".join(map(json.dumps, rows)))
    assert durations.main() == 0
    lines = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines() if line]
    assert lines[1] == ["2.50", "0.25", "gw1", "tests/a/test_y.py::test_it"]
    assert ["3.5", "0.5", "2", "tests/a"] in lines
    assert ["1.0", "0.2", "1", "engines"] in lines


@pytest.mark.proof
def test_a_whole_run_notes_what_each_test_took_and_a_part_of_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -m 'not proof'\ntestpaths = .\nmarkers = proof\n")
    noted = tmp_path / "noted.jsonl"
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.support.runs import durations\n"
        f"durations.FILE = Path({str(noted)!r})\npytest_plugins = ('tests.support.runs.durations',)\n"
    )
    output_of_pytest(tmp_path, "-k", "it")
    assert not noted.exists()
    output_of_pytest(tmp_path, "-n", "1")
    assert json.loads(noted.read_text())["test"] == "test_two.py::test_it"
