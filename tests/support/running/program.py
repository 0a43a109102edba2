"""A process that a test starts: it can be killed, frozen and started again, and its output goes to a log file.

Runs `onsale …` with arguments in the process of the test.

Processes of services that are forked from one that has imported them all: they start in a tenth of the time.
"""

import ctypes
import multiprocessing
import os
import runpy
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from onsale.cli import app as cli
from onsale.cli import context
from onsale.local.supervisor import PR_SET_PDEATHSIG, die_with_parent
from shared.contracts import frames
from shared.routes import SALE_SERVICES
from shared.web import listener


class Program:
    """It dies with the thread that started it, so that must be the tests' main thread."""

    def __init__(
        self, command: list[str], log_path: Path, *, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.command, self.log_path, self.env, self.cwd = command, log_path, env or dict(os.environ), cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, env=self.env, cwd=self.cwd, stdout=log, stderr=log,
                preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals, *, within_s: float = 60) -> int:
        """Ends it and waits until it has ended; its exit code. One that does not end is killed and fails the test."""
        if self.is_running:
            self.send(number)
        try:
            return self.process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not ended within {within_s} s: {self.log_tail()}") from None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        return self.log_path.read_text()

    def log_tail(self) -> str:
        return self.log_text()[-2000:]


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


PRELOADED = [*(f"services.{service}.app" for service in SALE_SERVICES), "onsale.cli.app", "onsale.sandbox.endpoints"]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*PRELOADED, "onsale.server.command", "uvloop", "httptools"])


class ForkedProgram(Program):
    """A program of `python -P -m MODULE …`. One that preloads a library or has other code is started as usual."""

    def start(self) -> None:
        env = self.env or {}
        if "LD_PRELOAD" in env or env.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
            super().start()
        else:
            python, safe_path, module, name, *options = self.command
            assert (python, safe_path, module) == (sys.executable, "-P", "-m")
            process = _forks.Process(target=_run, args=(name, options, self.env, self.log_path))
            process.start()
            self._process = _Forked(process)  # type: ignore[assignment]


class _Forked:
    """What `Program` uses of a `subprocess.Popen`."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _new_identity() -> None:
    """What each process draws when it is imported: nobody forks these programs outside tests."""
    frames._process, listener._PROCESS = secrets.token_hex(8), f"{secrets.token_hex(8)}-"


def _run(module: str, options: list[str], env: dict[str, str], log_path: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    _new_identity()
    os.environ.clear()
    os.environ.update(env)
    with log_path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.argv = [module, *options]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
