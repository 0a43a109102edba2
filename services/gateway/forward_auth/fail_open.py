"""The time limit of failing open: how long each line has been out of order.

An outage ends only when the line has been healthy for as long as the limit: a flapping line does not restart it.
"""

import time
from dataclasses import dataclass

from cachetools import FIFOCache

OUTAGES_MAX = 10_000


@dataclass
class _Outage:
    began_s: float
    healthy_since_s: float | None = None


class FailOpenWindow:
    """The outages of lines, as this process measures them."""

    def __init__(self) -> None:
        self._outages: FIFOCache[str, _Outage] = FIFOCache(OUTAGES_MAX)

    def outage_s(self, event_id: str, *, healthy: bool, limit_s: float) -> float | None:
        """How long this line has been out of order; `None` if it is healthy."""
        now_s, outage = time.monotonic(), self._outages.get(event_id)
        if not healthy:
            if outage is None:
                outage = self._outages[event_id] = _Outage(now_s)
            outage.healthy_since_s = None
            return now_s - outage.began_s
        if outage is not None:
            if outage.healthy_since_s is None:
                outage.healthy_since_s = now_s
            elif now_s - outage.healthy_since_s >= limit_s:
                del self._outages[event_id]
        return None
