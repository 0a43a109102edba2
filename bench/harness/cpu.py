"""Processor time of a process and all its descendants, as the kernel counts it in nanoseconds.

Processes that have ended are not counted, so measure servers that keep running.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
NS_PER_S = 1_000_000_000


def cpu_s(*roots: int | None) -> float:
    """Seconds spent so far by these processes and their descendants; 0 without any, or where there is no `/proc`."""
    wanted = {root for root in roots if root is not None}
    if not wanted or not PROC.is_dir():
        return 0.0
    return sum(_cpu_ns(pid) for pid in descendants(wanted)) / NS_PER_S


def cpu_s_by(root: int, part_of: Callable[[str], str]) -> Counter[str]:
    """Seconds spent so far by this process and its descendants, by the part that each command line belongs to."""
    spent: Counter[str] = Counter()
    for pid in descendants({root}) if PROC.is_dir() else ():
        spent[part_of(command_line(pid))] += _cpu_ns(pid) / NS_PER_S  # type: ignore[assignment] # seconds have fractions
    return spent


def command_line(pid: int) -> str:
    """The program of a process and its arguments; empty once it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def descendants(roots: set[int]) -> set[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, to_visit = set(roots), list(roots)
    while to_visit:
        below = [pid for pid in children.get(to_visit.pop(), ()) if pid not in found]
        found.update(below)
        to_visit += below
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended


def _cpu_ns(pid: int) -> int:
    try:
        return sum(int(task.read_text().split()[0]) for task in (PROC / str(pid)).glob("task/*/schedstat"))
    except OSError:
        return 0
