"""Runs `onsale …` with arguments in the process of the test."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from onsale.cli import app as cli
from onsale.cli import context


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., CommandResult]


def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs one command, on a terminal wide enough to break no line."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["onsale", *arguments])
        context.out.width = context.err.width = 200
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return CommandResult(int(ended.value.code or 0), *capsys.readouterr())

    return run
