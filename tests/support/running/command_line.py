"""`onsale …` as a person types it, run in the test's own process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from onsale.cli import app as cli
from onsale.cli import context


class Ended(NamedTuple):
    """How a command ended and what it said."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Ended]


def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command at a time, on a screen that is wide enough."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["onsale", *words])
        context.out.width = context.err.width = 200
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run
