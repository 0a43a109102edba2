"""Limits servers to a share of a core each, by the kernel's control groups (version 1 or 2).

Two cores carry the servers, the engines and the load generator at once: a second process without a limit gains what the
others leave it. Limited, one process of the measured service is what is full, as on a machine with cores to spare.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.harness.measurement import descendants

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 10_000


@contextmanager
def core_share(pids: Sequence[int], share: float, root: Path = ROOT) -> Iterator[bool]:
    """Within it each process, with its descendants, gets at most this share of a core. Yields whether the kernel lets
    us: it needs root, and a control group that may have children.
    """
    home = root / "cpu" if (root / "cpu").is_dir() else root
    with ExitStack() as groups:
        try:
            for pid in pids:
                groups.enter_context(_group(home, pid, round(PERIOD_US * share)))
        except OSError:
            groups.close()
            yield False
        else:
            yield True


@contextmanager
def _group(home: Path, pid: int, quota_us: int) -> Iterator[None]:
    group = home / f"onsale-bench-{os.getpid()}-{pid}"
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        for member in descendants({pid}):
            (group / "cgroup.procs").write_text(str(member))
        yield
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (home / "cgroup.procs").write_text(left)
        group.rmdir()
