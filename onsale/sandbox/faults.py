"""Faults that a test switches on with `POST /control`: outages, rate limits and delays."""

import math
import time
from dataclasses import dataclass

from onsale.sandbox.problems import RequestRefused
from onsale.sandbox.schemas import ControlRequest


@dataclass(slots=True)
class FaultControls:
    """The faults in force; 0 means off. Times are of the monotonic clock."""

    latency_s: float = 0.0
    down_until_s: float = 0.0
    rate_limit_per_s: float = 0.0
    _tokens: float = 0.0
    _counted_at_s: float = 0.0

    def apply(self, request: ControlRequest) -> None:
        """Changes the faults that the request names and no others."""
        now_s = time.monotonic()
        if request.down_for_s is not None:
            self.down_until_s = now_s + request.down_for_s
        if request.latency_s is not None:
            self.latency_s = request.latency_s
        if request.rate_limit_per_s is not None:
            self.rate_limit_per_s = request.rate_limit_per_s
            self._tokens, self._counted_at_s = max(1.0, request.rate_limit_per_s), now_s

    def settings(self) -> dict[str, float]:
        return {
            "down_for_s": round(max(0.0, self.down_until_s - time.monotonic()), 3),
            "rate_limit_per_s": self.rate_limit_per_s,
            "latency_s": self.latency_s,
        }

    def check(self) -> None:
        """Raises `RequestRefused` during an outage (503) or above the rate limit (429)."""
        if not self.down_until_s and not self.rate_limit_per_s:
            return
        now_s = time.monotonic()
        if now_s < self.down_until_s:
            wait = {"Retry-After": str(math.ceil(self.down_until_s - now_s))}
            raise RequestRefused(503, "unavailable", "The provider is not available.", headers=wait)
        if self.rate_limit_per_s and not self._take_token(now_s):
            wait = {"Retry-After": str(math.ceil(1 / self.rate_limit_per_s))}
            raise RequestRefused(429, "rate_limited", "Too many calls; slow down.", headers=wait)

    def _take_token(self, now_s: float) -> bool:
        """A token bucket one second deep."""
        refill = (now_s - self._counted_at_s) * self.rate_limit_per_s
        self._tokens = min(max(1.0, self.rate_limit_per_s), self._tokens + refill)
        self._counted_at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
