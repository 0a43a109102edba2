"""Runs the steps of a guide as they are written: the shell blocks of its page, with free ports in place of its own.

The packages that requirements bring with them, and programs that can import those and nothing else.

Programs that some tests need and a bare machine lacks: their paths, the mark that skips tests without them, and a
closing line that says what to install. Debian's packages of most of them have the names of the programs.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onsale.local.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
PORT = re.compile(r"(?<=127\.0\.0\.[12]:)\d+(?:/\d{4})?|(?<=localhost:)\d+|(?<=_PORT=)\d+|(?<=-port )\d+")


def block(page: Path, title: str) -> str:
    """The one shell block of a section of the page."""
    [script] = re.findall(r"```sh\n(.*?)```", page.read_text().split(f"## {title}\n")[1].split("\n## ")[0], re.DOTALL)
    return str(script)


class Ports:
    """Replaces every port of a guide by a free one, the same everywhere."""

    def __init__(self, **known: int) -> None:
        self._known = {name.removeprefix("p"): str(port) for name, port in known.items()}

    def replace(self, text: str) -> str:
        return PORT.sub(lambda match: "/".join(map(self._free, match[0].split("/"))), text)

    def replace_in(self, *files: Path) -> None:
        for file in files:
            file.write_text(self.replace(file.read_text()))

    def _free(self, port: str) -> str:
        return self._known.setdefault(port, str(free_port()))


@contextmanager
def shell(script: str, folder: Path, **environ: str) -> Iterator[Path]:
    """Runs a script in the background, which writes to this log; all processes it started end with this context."""
    log_path = folder / "shell.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"set -eu\n{script}\nwait"], cwd=folder, env=environ, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield log_path
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            finally:
                os.killpg(process.pid, signal.SIGKILL)


ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = "onsale"


def installed_with(*requirements: str) -> set[str]:
    """The names of the packages that pip installs for these requirements; those of `onsale` stand in pyproject.toml."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, wanting_extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": wanting_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in found if known == name}:
            found.add((name, extra))
            needed = PROJECT["dependencies"] if name == OURS else requires(name) or []
            waiting += [(Requirement(text), extra) for text in needed]
    return {name for name, _ in found}


@cache
def providers() -> dict[str, set[str]]:
    """The installed packages that contain each top-level module."""
    return {module: set(map(canonicalize_name, names)) for module, names in packages_distributions().items()}


def run_with_only(*requirements: str, code: str, folder: Path = ROOT) -> str:
    """What the program prints in a process that can import these requirements, the standard library and `folder`."""
    allowed = installed_with(*requirements)
    blocked = [module for module, packages in providers().items() if not packages & allowed]
    program = f"import sys\nfor blocked in {blocked!r}: sys.modules.setdefault(blocked)\n{code}"
    environ = {name: value for name, value in os.environ.items() if not re.match("ONSALE_", name)}
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program], env=environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


MISSING = "not installed: "
PACKAGES = {  # of another name than the program
    "node": "nodejs", "varnishd": "varnish", "systemd-analyze": "systemd", "systemd-nspawn": "systemd-container",
}  # fmt: skip
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"


def find_program(name: str) -> str | None:
    """The path of the program, if it is installed. Debian puts servers where only root's PATH looks."""
    return shutil.which(name, path=PATH)


def needs(*programs: str) -> pytest.MarkDecorator:
    """The mark of tests that are skipped where one of these programs is not installed."""
    missing = [name for name in programs if find_program(name) is None]
    return pytest.mark.skipif(bool(missing), reason=MISSING + ", ".join(missing))


def need(program: str) -> str:
    """The path of the program; the test that asks is skipped where it is not installed."""
    path = find_program(program)
    return path if path is not None else pytest.skip(MISSING + program)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]) for report in skipped]
    missing = {name for reason in reasons if MISSING in reason for name in reason.partition(MISSING)[2].split(", ")}
    if missing:
        count = sum(MISSING in reason for reason in reasons)
        packages = " ".join(sorted(PACKAGES.get(name, name) for name in missing))
        terminalreporter.write_line(f"{count} tests were skipped; they run after: apt-get install {packages}")
