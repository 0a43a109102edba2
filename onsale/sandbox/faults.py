"""Faults that a test switches on with `POST /control`: outages, rate limits and delays."""

import math
import time
from dataclasses import dataclass

from onsale.sandbox.problems import RequestRefused
from onsale.sandbox.schemas import ControlRequest
from shared.security.limits import Buckets


@dataclass(slots=True)
class FaultControls:
    """The faults in force; 0 means off. Times are of the monotonic clock."""

    latency_s: float = 0.0
    down_until_s: float = 0.0
    rate_limit_per_s: float = 0.0
    _calls: Buckets | None = None

    def apply(self, request: ControlRequest) -> None:
        """Changes the faults that the request names and no others."""
        now_s = time.monotonic()
        if request.down_for_s is not None:
            self.down_until_s = now_s + request.down_for_s
        if request.latency_s is not None:
            self.latency_s = request.latency_s
        if request.rate_limit_per_s is not None:
            self.rate_limit_per_s = request.rate_limit_per_s
            per_s = request.rate_limit_per_s
            self._calls = Buckets(per_s=per_s, burst=max(1, int(per_s)), keys_max=1) if per_s else None

    def settings(self) -> dict[str, float]:
        return {
            "down_for_s": round(max(0.0, self.down_until_s - time.monotonic()), 3),
            "rate_limit_per_s": self.rate_limit_per_s,
            "latency_s": self.latency_s,
        }

    def check(self) -> None:
        """Raises `RequestRefused` during an outage (503) or above the rate limit (429)."""
        now_s = time.monotonic()
        if now_s < self.down_until_s:
            raise _refused(503, "unavailable", "The provider is not available.", self.down_until_s - now_s)
        if self._calls is not None and (wait_s := self._calls.take("all", now_s=now_s)):
            raise _refused(429, "rate_limited", "Too many calls; slow down.", wait_s)


def _refused(status: int, code: str, detail: str, wait_s: float) -> RequestRefused:
    return RequestRefused(status, code, detail, headers={"Retry-After": str(math.ceil(wait_s))})
