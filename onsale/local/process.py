"""A child process under a supervisor: PostgreSQL, Valkey, the sandbox or a service. It never outlives this process.

Plain `subprocess` without an event loop's child watcher: a child may be started in one loop and stopped in another.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onsale.errors import OperatorError
from onsale.local import supervisor
from shared.concurrency.background import retry_pause_s, to_the_end

POLL_S = 0.05
STEADY_S = 60.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
LOG_BYTES_KEPT = 10_000_000
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 3
LOG_TAIL_CHARACTERS = 500
Report = Callable[[str], object]


@dataclass
class Child:
    """A running child, its log, and the pipe whose closing stops it."""

    name: str
    log_path: Path
    _supervisor: subprocess.Popen[bytes]
    _pipe_fd: int | None
    _log_start: int

    @classmethod
    def start(
        cls,
        cmd: Sequence[str | Path],
        *,
        name: str,
        lock_path: Path,
        log_path: Path,
        stop_signal: Literal["INT", "TERM"],
        env: Mapping[str, str] | None = None,
        wait_s: float = 15,
        user: tuple[int, int] | None = None,
    ) -> "Child":
        """Starts `cmd` once the lock is free (waits at most `wait_s`), as `user` (user id, group id) if given.

        Returns at once, without waiting for the command to be ready. Its output goes to `log_path`.
        """
        read_fd, write_fd = os.pipe()
        options = ["--parent-fd", str(read_fd), "--lock", str(lock_path), "--wait-s", str(wait_s)]
        options += ["--signal", stop_signal]
        if user is not None:
            options += ["--user-id", str(user[0]), "--group-id", str(user[1])]
        try:
            log_start = rotate_log(log_path)
            with log_path.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - the caller's own command
                    [sys.executable, "-I", "-S", supervisor.__file__, *options, "--", *map(str, cmd)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=None if env is None else dict(env),
                    pass_fds=[read_fd],
                    start_new_session=True,  # Ctrl-C reaches this process only, which stops its children in order
                )
        except OSError as problem:
            os.close(write_fd)
            raise OperatorError(f"{name} could not be started: {problem}") from problem
        finally:
            os.close(read_fd)
        return cls(name=name, log_path=log_path, _supervisor=process, _pipe_fd=write_fd, _log_start=log_start)

    @property
    def returncode(self) -> int | None:
        """The child's exit code, 128 + signal when a signal ended it; None while it runs."""
        return self._supervisor.poll()

    async def wait(self) -> int:
        """Waits until the child has ended; its exit code."""
        while (code := self._supervisor.poll()) is None:
            await _may_have_ended(self._supervisor.pid)
        return code

    async def stop(self) -> None:
        """Stops the child and waits until it has ended, however often it is cancelled. May be repeated."""
        if self._pipe_fd is not None:
            os.close(self._pipe_fd)
            self._pipe_fd = None
        await to_the_end(self.wait())

    def log_tail(self) -> str:
        """The last lines of its log since this start, joined to one."""
        with self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL_BYTES))
            text = log.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        tail = " | ".join(lines[-LOG_TAIL_LINES:])
        return tail[-LOG_TAIL_CHARACTERS:] or "its log is empty"

    def log_excerpt(self) -> str:
        """The end of its log, and where the rest is."""
        return f"{self.log_tail()} (more in {self.log_path})"

    def ended(self) -> str | None:
        """One line about a child that has ended by itself; None while it runs."""
        return None if self.returncode is None else f"{self.name} has ended: {self.log_excerpt()}"


async def _may_have_ended(pid: int) -> None:
    """Returns when this child of the process has ended; a moment later where the system has no descriptors for
    processes.
    """
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        await asyncio.sleep(POLL_S)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


@dataclass
class RestartedChild:
    """A child that is started again whenever it ends, after a pause that grows while it keeps ending."""

    child: Child
    restart: Callable[[], Awaitable[Child]]
    ends_max: int | None = None

    async def run(self, report: Report) -> None:
        """Runs until cancelled. Raises `OperatorError` when the child has ended `ends_max` times in a row."""
        ends, up_s = 0, time.monotonic()
        while True:
            await self.child.wait()
            ended = self.child.ended()
            ends = 1 if time.monotonic() - up_s > STEADY_S else ends + 1
            if self.ends_max is not None and ends > self.ends_max:
                raise OperatorError(f"{ended}. It was started again {self.ends_max} times.")
            report(f"{ended}. Starting it again …")
            await self.child.stop()  # its supervisor has ended as well; this closes its pipe
            await asyncio.sleep(retry_pause_s(ends - 1, first_s=PAUSE_FIRST_S, max_s=PAUSE_MAX_S))
            with suppress(OperatorError, OSError):  # reported from the log in the next round
                self.child = await self.restart()
            up_s = time.monotonic()


def require_running(children: Sequence[Child]) -> None:
    """Raises `OperatorError` when one has ended by itself."""
    for child in children:
        if ended := child.ended():
            raise OperatorError(ended)


def rotate_log(log_path: Path) -> int:
    """Renames a log that has grown too large (one old log is kept); the size of the log now."""
    size = log_path.stat().st_size if log_path.exists() else 0
    if size <= LOG_BYTES_KEPT:
        return size
    log_path.replace(log_path.with_name(f"{log_path.name}.old"))
    return 0
