"""The machine of a measurement: processor, memory, disk, and versions of the software."""

import asyncio
import importlib.metadata
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

PACKAGES = ("uvicorn", "fastapi", "starlette", "uvloop", "httptools", "asyncpg", "redis", "hiredis", "pyjwt")
FSYNCS = 100
PAGE = b"\0" * 8192


def machine(disk: Path) -> dict[str, str]:
    """What a reader needs to judge the figures; `disk` is where the databases keep their data."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "Processor": f"{_processor()}, {os.cpu_count()} cores, shared by servers, engines and load generator",
        "Memory": f"{pages * page_bytes / 2**30:.0f} GiB",
        "System": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Disk": f"8 KiB written and forced to disk in {_fsync_ms(disk):.2f} ms (median)",
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


async def busy_cores(seconds: float = 1.0) -> float:
    """How many cores were busy over this time, whoever used them; 0 where there is no `/proc`."""
    before_s = _busy_s()
    await asyncio.sleep(seconds)
    return (_busy_s() - before_s) / seconds


def _busy_s() -> float:
    """Processor seconds that were not idle since the machine started."""
    try:
        first, *_ = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, *interrupts = (int(part) for part in first.split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _fsync_ms(disk: Path) -> float:
    """The median time of an fsync here."""
    took = []
    with tempfile.TemporaryFile(dir=disk, buffering=0) as file:
        for _ in range(FSYNCS):
            started = time.perf_counter()
            file.write(PAGE)
            os.fsync(file.fileno())
            took.append((time.perf_counter() - started) * 1000)
    return statistics.median(took)
