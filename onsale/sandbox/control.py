"""The knobs a test turns: played outages, rate limits and delays; and the gate they make at every door."""

import math
import time
from dataclasses import dataclass

from onsale.sandbox.problems import Refused
from onsale.sandbox.schemas import ControlAsked


@dataclass(slots=True)
class Knobs:
    """0 means off everywhere; times are of the monotonic clock."""

    latency_s: float = 0.0
    down_until_s: float = 0.0
    rate_limit_per_s: float = 0.0
    _tokens: float = 0.0
    _counted_at_s: float = 0.0

    def turn(self, asked: ControlAsked) -> None:
        """Only what was named changes."""
        now_s = time.monotonic()
        if asked.down_for_s is not None:
            self.down_until_s = now_s + asked.down_for_s
        if asked.latency_s is not None:
            self.latency_s = asked.latency_s
        if asked.rate_limit_per_s is not None:
            self.rate_limit_per_s = asked.rate_limit_per_s
            self._tokens, self._counted_at_s = max(1.0, asked.rate_limit_per_s), now_s

    def positions(self) -> dict[str, float]:
        return {
            "down_for_s": round(max(0.0, self.down_until_s - time.monotonic()), 3),
            "rate_limit_per_s": self.rate_limit_per_s,
            "latency_s": self.latency_s,
        }

    def check(self) -> None:
        """Let a call in, or refuse it as a provider would that is away or overrun."""
        if not self.down_until_s and not self.rate_limit_per_s:
            return
        now_s = time.monotonic()
        if now_s < self.down_until_s:
            wait = {"Retry-After": str(math.ceil(self.down_until_s - now_s))}
            raise Refused(503, "unavailable", "The provider is not available.", headers=wait)
        if self.rate_limit_per_s and not self._take(now_s):
            wait = {"Retry-After": str(math.ceil(1 / self.rate_limit_per_s))}
            raise Refused(429, "rate_limited", "Too many calls; slow down.", headers=wait)

    def _take(self, now_s: float) -> bool:
        """A token bucket one second deep."""
        refill = (now_s - self._counted_at_s) * self.rate_limit_per_s
        self._tokens = min(max(1.0, self.rate_limit_per_s), self._tokens + refill)
        self._counted_at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
