"""Keeps a child process no longer than its parent lives: `python -m onsale.local.supervisor --parent-fd N --lock FILE …
-- cmd`.

It holds a lock that keeper and child share, so two children never run on the same data, and it ends the child when the
parent's pipe closes, which also happens when the parent dies by `kill -9`. Standard library only, run by file path: it
must start fast and on its own.
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


class Doorbell:
    """Wakes a `select` when the parent's pipe closes, the child ends, or somebody asks this process to stop."""

    def __init__(self, parent_fd: int) -> None:
        self.parent_fd = parent_fd
        self.signal_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *STOP_SIGNALS):
            signal.signal(number, lambda *_: None)

    def asked_to_stop(self, timeout_s: float | None) -> bool:
        """Wait for a ring, at most `timeout_s`; say whether it means stop."""
        ready, _, _ = select.select([self.parent_fd, self.signal_fd], [], [], timeout_s)
        rung = os.read(self.signal_fd, 512) if self.signal_fd in ready else b""
        return self.parent_fd in ready or any(number in STOP_SIGNALS for number in rung)


def take_lock(path: str, *, wait_s: float, bell: Doorbell) -> int | None:
    """The locked descriptor; None when told to stop first; exit code 2 when an older holder does not go."""
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
        if bell.asked_to_stop(LOCK_POLL_S):
            return None


def dies_with_this_process(stop_signal: signal.Signals) -> Callable[[], None] | None:
    """What the child runs before `exec` so that the kernel ends it even when this keeper is killed (Linux only)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    keeper_pid = os.getpid()

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(stop_signal), 0, 0, 0)
        if os.getppid() != keeper_pid:  # the keeper died before the kernel had been told
            os._exit(1)

    return before_exec


def stop(child: subprocess.Popen[bytes], stop_signal: signal.Signals, *, grace_s: float) -> None:
    """Ask the child to end, then end its whole process group."""
    child.send_signal(stop_signal)
    try:
        child.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def keep(arguments: argparse.Namespace) -> int:
    """Run the command under the lock until it ends or the parent does; the exit code to leave with."""
    bell = Doorbell(arguments.parent_fd)
    lock_fd = take_lock(arguments.lock, wait_s=arguments.wait_s, bell=bell)
    if lock_fd is None:
        return 0
    stop_signal = signal.Signals[f"SIG{arguments.signal}"]
    child = subprocess.Popen(  # noqa: S603 - the command we are here for
        arguments.cmd,
        pass_fds=[lock_fd],
        start_new_session=True,
        preexec_fn=dies_with_this_process(stop_signal),  # noqa: PLW1509 - there are no threads here
        user=arguments.user_id,
        group=arguments.group_id,
        extra_groups=None if arguments.user_id is None else [],
    )
    while child.poll() is None:
        if bell.asked_to_stop(None):
            stop(child, stop_signal, grace_s=arguments.grace_s)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def main() -> int:
    """Read the command line and keep its command."""
    parser = argparse.ArgumentParser(
        prog="onsale.local.supervisor", description="Keep a child no longer than its parent lives."
    )
    parser.add_argument("--parent-fd", type=int, required=True, help="read end of a pipe whose writer is the parent")
    parser.add_argument("--lock", required=True, help="file to lock for as long as keeper or child lives")
    parser.add_argument("--wait-s", type=float, default=15, help="how long an older holder of the lock may take to go")
    parser.add_argument("--signal", choices=["INT", "TERM"], required=True, help="what asks the child to end")
    parser.add_argument("--grace-s", type=float, default=8, help="how long the child may take to end before SIGKILL")
    parser.add_argument("--user-id", type=int, help="run the child as this user")
    parser.add_argument("--group-id", type=int, help="run the child as this group")
    parser.add_argument("cmd", nargs="+")
    arguments = parser.parse_args()
    try:
        return keep(arguments)
    except OSError as problem:
        sys.stderr.write(f"{arguments.cmd[0]} could not be started: {problem}\n")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
