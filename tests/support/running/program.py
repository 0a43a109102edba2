"""A process that a test starts: it can be killed, frozen and started again, and its output goes to a log file."""

import os
import signal
import subprocess
from pathlib import Path

from onsale.local.supervisor import die_with_parent


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
