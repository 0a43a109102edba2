"""Whether this process can bear another stream: by how late its loop is and how much memory is left, both measured.

A crowd that comes at once to an idle process is let in as fast as it can be served. Only when those who listen already
would hear their news late, or the machine would run out, are newcomers turned away.
"""

import asyncio
from pathlib import Path
from typing import Literal

from services.notifier.settings import Settings

PROBE_S = 0.25
MEMORY_EVERY = 4  # probes
MIB = 1024 * 1024
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
Lack = Literal["lag", "memory"]


class Headroom:
    """Probes for ever. A loop is late when two probes in a row were, or one was and the next is overdue: one long turn
    may be the crowd itself being served.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lags_s, self._due_s = (0.0, 0.0), float("inf")
        self._free_bytes: int | None = None

    def lacks(self, now_s: float) -> Lack | None:
        """What there is too little of at this loop time; nothing if there is enough of all."""
        before_s, last_s = self._lags_s
        if min(last_s, max(before_s, now_s - self._due_s)) > self._settings.lag_max_s:
            return "lag"
        if self._free_bytes is not None and self._free_bytes < self._settings.memory_free_min_mib * MIB:
            return "memory"
        return None

    async def run(self) -> None:
        clock, turn = asyncio.get_running_loop().time, 0
        while True:
            if turn % MEMORY_EVERY == 0:
                self._free_bytes = free_bytes()
            turn += 1
            self._due_s = clock() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._lags_s = self._lags_s[1], clock() - self._due_s


def free_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """What may still be taken, by the machine or by the container's limit, whichever is less; `None` where neither is
    told. A container's page cache does not count as taken: the kernel gives it back.
    """
    told = [_of_machine(meminfo), _of_container(cgroup)]
    return min((free for free in told if free is not None), default=None)


def _of_machine(meminfo: Path) -> int | None:
    kib = _field(meminfo, "MemAvailable:")
    return None if kib is None else kib * 1024


def _of_container(cgroup: Path) -> int | None:
    taken = _field(cgroup / "memory.stat", "anon")
    try:
        return None if taken is None else int((cgroup / "memory.max").read_text()) - taken
    except (OSError, ValueError):  # no container, or `max`: no limit
        return None


def _field(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(words[1]) for line in lines if (words := line.split())[0] == name), None)
