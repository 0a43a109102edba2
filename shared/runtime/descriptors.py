"""File descriptors: each connection takes one, and the limit of a process is `ulimit -n`.

Some are reserved, so that clients cannot use up those needed for PostgreSQL, Redis, other services and files.
"""

import logging
import resource
from pathlib import Path

from shared.runtime.logging import get_logger

log = get_logger("onsale.descriptors")
ENOUGH = 4096
USEFUL_MAX = 1 << 20
SPARE_MAX = 512
BINDS = "This process may have {} files and connections open (ulimit -n, LimitNOFILE); raise that limit."
_OPEN = Path("/proc/self/fd")


def descriptors_max() -> int:
    """The most that may be open in this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return USEFUL_MAX if soft == resource.RLIM_INFINITY else soft


def descriptors_spare() -> int:
    """The number reserved, which clients do not get."""
    return min(SPARE_MAX, descriptors_max() // 4)


def descriptors_open() -> int | None:
    """The number open now; `None` where the system does not show it."""
    try:
        return sum(1 for _ in _OPEN.iterdir())
    except OSError:
        return None


def raise_descriptor_limit() -> None:
    """Raises the soft limit to the hard one, and warns if that is still low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = USEFUL_MAX if hard == resource.RLIM_INFINITY else min(hard, USEFUL_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # some systems enforce a lower limit than they report
            log.info("descriptors.limit_kept", descriptors_max=soft)
    has = descriptors_max()
    level = logging.INFO if has >= ENOUGH else logging.WARNING
    connections = has - descriptors_spare()
    log.log(level, "descriptors.limit", max=has, connections=connections, what_binds=BINDS.format(has))
