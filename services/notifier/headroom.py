"""The headroom of this process for more streams: measured lag of the event loop and free memory.

A crowd that comes to an idle process is admitted as fast as it can be served. New streams are rejected only when open
ones would get their frames late or memory would run out.
"""

import asyncio
from pathlib import Path
from typing import Literal

from services.notifier.tuning import Tuning

PROBE_S = 0.25
PROBES_MAX = 24  # after the last stream that asked to be opened
PROBES_PER_MEMORY_READ = 4  # probes
MIB = 1024 * 1024
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
Shortage = Literal["lag", "memory"]


class Headroom:
    """Probes while streams are opened. The loop counts as late when two probes in a row were late, or one was and the
    next is overdue: a single late one may be the crowd being served.
    """

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._lags_s, self._due_s = (0.0, 0.0), float("inf")
        self._free_bytes: int | None = None
        self._requested, self._left = asyncio.Event(), 0

    def shortage(self, now_s: float) -> Shortage | None:
        """What there is too little of at this loop time; `None` if there is enough."""
        self._left = PROBES_MAX
        self._requested.set()
        before_s, last_s = self._lags_s
        if min(last_s, max(before_s, now_s - self._due_s)) > self._tuning.lag_max_s:
            return "lag"
        if self._free_bytes is not None and self._free_bytes < self._tuning.memory_free_min_mib * MIB:
            return "memory"
        return None

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            if self._left <= 0:
                self._due_s = float("inf")  # a rest is no lag
                self._requested.clear()
                await self._requested.wait()
            if self._left % PROBES_PER_MEMORY_READ == 0:
                self._free_bytes = free_bytes()
            self._left -= 1
            self._due_s = clock() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._lags_s = self._lags_s[1], clock() - self._due_s


def free_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Free memory of the machine or below the container's limit, whichever is less; `None` where neither is known. The
    container's page cache counts as free: the kernel reclaims it.
    """
    limits = [_machine_free_bytes(meminfo), _container_free_bytes(cgroup)]
    return min((free for free in limits if free is not None), default=None)


def _machine_free_bytes(meminfo: Path) -> int | None:
    kib = _field(meminfo, "MemAvailable:")
    return None if kib is None else kib * 1024


def _container_free_bytes(cgroup: Path) -> int | None:
    used_bytes = _field(cgroup / "memory.stat", "anon")
    try:
        return None if used_bytes is None else int((cgroup / "memory.max").read_text()) - used_bytes
    except (OSError, ValueError):  # no container, or `max`: no limit
        return None


def _field(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(words[1]) for line in lines if (words := line.split())[0] == name), None)
