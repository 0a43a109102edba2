"""Supervisor of one child process: `python -m onsale.local.supervisor --parent-fd N --lock FILE … -- cmd`.

It stops the child when the parent's pipe closes, which also happens when the parent dies by `kill -9`. Supervisor and
child share a lock, so two children never run on the same data. Standard library only and run by file path, so that it
starts fast and needs nothing installed.
"""

import argparse
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

LOCK_POLL_S = 0.02
STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
PR_SET_PDEATHSIG = 1


class StopEvents:
    """Waits for events: the parent's pipe closes, the child ends, or a signal asks this process to stop."""

    def __init__(self, parent_fd: int) -> None:
        self.parent_fd = parent_fd
        self.signal_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *STOP_SIGNALS):
            signal.signal(number, lambda *_: None)

    def wait_for_stop(self, timeout_s: float | None) -> bool:
        """Waits for an event, at most `timeout_s`; whether it means stop."""
        ready, _, _ = select.select([self.parent_fd, self.signal_fd], [], [], timeout_s)
        signals = os.read(self.signal_fd, 512) if self.signal_fd in ready else b""
        return self.parent_fd in ready or any(number in STOP_SIGNALS for number in signals)


def acquire_lock(path: str, *, wait_s: float, events: StopEvents) -> int | None:
    """The locked descriptor; None when asked to stop first. Exits with code 2 when an older holder keeps the lock."""
    lock_fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock_fd
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                sys.stderr.write(f"{path} is still locked after {wait_s:g} s: an older process has not ended\n")
                raise SystemExit(2) from None
        if events.wait_for_stop(LOCK_POLL_S):
            return None


def die_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    """What the child runs before `exec`, so that the kernel ends it even when this process is killed (Linux only)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    supervisor_pid = os.getpid()

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(stop_signal), 0, 0, 0)
        if os.getppid() != supervisor_pid:  # this process died before prctl was called
            os._exit(1)

    return before_exec


def stop(child: subprocess.Popen[bytes], stop_signal: signal.Signals, *, grace_s: float) -> None:
    """Asks the child to stop and kills its process group if it has not stopped after `grace_s`."""
    child.send_signal(stop_signal)
    try:
        child.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def supervise(arguments: argparse.Namespace) -> int:
    """Runs the command under the lock until it ends or the parent does; the exit code to end with."""
    events = StopEvents(arguments.parent_fd)
    lock_fd = acquire_lock(arguments.lock, wait_s=arguments.wait_s, events=events)
    if lock_fd is None:
        return 0
    stop_signal = signal.Signals[f"SIG{arguments.signal}"]
    child = subprocess.Popen(  # noqa: S603 - the command we are here for
        arguments.cmd,
        pass_fds=[lock_fd],
        start_new_session=True,
        preexec_fn=die_with_parent(stop_signal),  # noqa: PLW1509 - there are no threads here
        user=arguments.user_id,
        group=arguments.group_id,
        extra_groups=None if arguments.user_id is None else [],
    )
    while child.poll() is None:
        if events.wait_for_stop(None):
            stop(child, stop_signal, grace_s=arguments.grace_s)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def main() -> int:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="onsale.local.supervisor", description="Run a command no longer than the parent lives."
    )
    parser.add_argument("--parent-fd", type=int, required=True, help="read end of a pipe whose writer is the parent")
    parser.add_argument("--lock", required=True, help="file to lock for as long as supervisor or child lives")
    parser.add_argument("--wait-s", type=float, default=15, help="how long an older holder of the lock may take to go")
    parser.add_argument("--signal", choices=["INT", "TERM"], required=True, help="signal that stops the child")
    parser.add_argument("--grace-s", type=float, default=8, help="how long the child may take to end before SIGKILL")
    parser.add_argument("--user-id", type=int, help="run the child as this user")
    parser.add_argument("--group-id", type=int, help="run the child as this group")
    parser.add_argument("cmd", nargs="+")
    arguments = parser.parse_args()
    try:
        return supervise(arguments)
    except OSError as problem:
        sys.stderr.write(f"{arguments.cmd[0]} could not be started: {problem}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
