"""Wall-clock time: integer milliseconds since the epoch inside the suite, RFC 3339 UTC outside.

A deadline that two processes compete for is never read here: Redis scripts and SQL statements use their server's clock.
A deadline granted to a fan holds as long as any of these clocks says so (`Clocks.slowest_ms`). Clocks more than a
minute apart are unfit for deadlines. Code that ends a hold or a place reads the clocks anew, so that a clock step
counts before it is noticed here.
"""

import functools
import time
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from shared.errors.problems import ClocksApart

APART_MS = 60_000
POSTGRES, REDIS = "PostgreSQL", "Redis"


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


class Clocks:
    """How far PostgreSQL's clocks and Redis' were ahead of this process's, in milliseconds, when they were last read
    (`process.clock_offsets`).
    """

    def __init__(self, service: str = "") -> None:
        self.service = service
        self.ahead_ms = {POSTGRES: [0], REDIS: [0]}

    def slowest_besides_redis_ms(self) -> int:
        """The time by the slower of this process and PostgreSQL; scripts compare it with Redis' own clock."""
        return now_ms() + min(0, *self.ahead_ms[POSTGRES])

    def slowest_ms(self) -> int:
        """The time by the slowest of all clocks."""
        return now_ms() + min(0, *self.ahead_ms[POSTGRES], *self.ahead_ms[REDIS])

    def apart(self) -> list[str]:
        """The clocks that are more than a minute off."""
        return [clock for clock, ahead_ms in self.ahead_ms.items() if abs(furthest(ahead_ms)) > APART_MS]

    def warnings(self) -> list[str]:
        """One sentence for each clock that is more than a minute off, for `/readyz`."""
        return [describe_offset(clock, furthest(self.ahead_ms[clock])) for clock in self.apart()]

    def require(self) -> None:
        """Raises `ClocksApart` for PostgreSQL's clock. Scripts that set deadlines check Redis' clock themselves."""
        if POSTGRES in self.apart():
            raise ClocksApart(describe_offset(POSTGRES, furthest(self.ahead_ms[POSTGRES])))


def furthest(ahead_ms: list[int]) -> int:
    return max(ahead_ms, key=abs, default=0)


def describe_offset(clock: str, ahead_ms: int) -> str:
    """One sentence for a person: how far the clock is off, and what that means."""
    direction = "ahead of" if ahead_ms > 0 else "behind"
    offset = f"The clock of {clock} is {abs(ahead_ms) / 1000:.0f} s {direction} this process's."
    return f"{offset} Nothing is sold until they are within {APART_MS // 1000} s; what is held stays held."
