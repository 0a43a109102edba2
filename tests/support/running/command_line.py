"""Runs `onsale …` with arguments in the process of the test."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

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


def event_file(tmp_path: Path, event_id: str, **changes: Any) -> str:
    """The path of an event file, with these fields."""
    event = {
        "event_id": event_id, "name": "Before", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z",
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
        "room": {"rate_per_s": 5}, "fees": [], **changes,
    }  # fmt: skip
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(event))
    return str(path)
