"""What of this machine some faults need, and every kind of fault that can be tried here."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from functools import cache

from proof.drills.redis.test_clock_steps import LIBRARY
from proof.swarm.faults import databases, network, outside, processes
from proof.swarm.faults.fault import Fault, table
from proof.upgrades.history import has_history

FAULTS: dict[str, type[Fault]] = table(processes, network, databases, outside)


@cache
def missing() -> frozenset[str]:
    """What faults need and this machine lacks."""
    there = {
        "prlimit": shutil.which("prlimit") is not None and os.geteuid() == 0,
        "libfaketime": LIBRARY is not None,
        "mount": os.geteuid() == 0 and _can_mount(),
        "history": has_history(),
    }
    return frozenset(name for name, is_there in there.items() if not is_there)


def possible(lacking: Collection[str]) -> list[str]:
    """The kinds of faults that need nothing of what is lacking."""
    return sorted(name for name, fault in FAULTS.items() if fault.needs not in lacking)


def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", "-l", folder], check=True)
        return True
