"""Processor time of a process and everything it started, as the kernel counts it, in nanoseconds.

What has ended meanwhile is no longer counted, so ask about servers that stay.
"""

from pathlib import Path

PROC = Path("/proc")
NS_PER_S = 1_000_000_000


def cpu_s(*roots: int | None) -> float:
    """Seconds spent so far by these processes and their descendants; 0 without any, or where there is no `/proc`."""
    wanted = {root for root in roots if root is not None}
    if not wanted or not PROC.is_dir():
        return 0.0
    return sum(_own_ns(pid) for pid in descendants(wanted)) / NS_PER_S


def descendants(roots: set[int]) -> set[int]:
    """The processes themselves and all below them."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, look_at = set(roots), list(roots)
    while look_at:
        below = [pid for pid in children.get(look_at.pop(), ()) if pid not in found]
        found.update(below)
        look_at += below
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended


def _own_ns(pid: int) -> int:
    try:
        return sum(int(task.read_text().split()[0]) for task in (PROC / str(pid)).glob("task/*/schedstat"))
    except OSError:
        return 0
