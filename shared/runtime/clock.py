"""Wall-clock time: integer milliseconds since the epoch inside the suite, RFC 3339 UTC outside.

A deadline that two processes compete for is never read here: Redis scripts and SQL statements use their server's clock.
"""

import functools
import time
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo


def now_s() -> float:
    """Seconds since the epoch."""
    return time.time()


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@functools.lru_cache(maxsize=4096)  # all members of a batch expire at the same time
def rfc3339(at_ms: int) -> str:
    """`2027-03-05T19:30:00.250Z` for a time in milliseconds since the epoch."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_datetime(at: datetime) -> int:
    """Milliseconds since the epoch of an aware datetime."""
    return round(at.timestamp() * 1000)


def to_datetime(at_ms: int) -> datetime:
    """The aware UTC datetime of a time in milliseconds since the epoch."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def is_offset(zone: str) -> bool:
    """Whether a zone is an offset such as `+09:00`, and not an IANA name."""
    return zone[0] in "+-"


def zone_of(zone: str) -> tzinfo:
    """A zone by its IANA name, or an offset such as `+09:00`."""
    return datetime.strptime(zone, "%z").tzinfo or UTC if is_offset(zone) else ZoneInfo(zone)
