"""Programs that some tests need and a bare machine lacks: their paths, the mark that skips tests without them, and a
closing line that says what to install. Debian's packages of most of them have the names of the programs.
"""

import os
import shutil

import pytest

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
