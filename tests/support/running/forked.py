"""Processes of services that are forked from one that has imported them all: they start in a tenth of the time."""

import ctypes
import multiprocessing
import os
import runpy
import secrets
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

from onsale.local.supervisor import PR_SET_PDEATHSIG
from shared.contracts import frames
from shared.routes import SALE_SERVICES
from shared.web import listener
from tests.support.running.program import Program

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
