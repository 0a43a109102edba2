"""Stops a server without ending it: its connections stay open and nothing answers, as on a machine that hangs."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process and its children are stopped until the end of the block."""
    stopped = [pid]
    os.kill(pid, signal.SIGSTOP)  # first the parent: it forks no more
    stopped += _children(pid)
    for each in stopped:
        _send(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in stopped:
            _send(each, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(parent: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(process.name))
    return found
