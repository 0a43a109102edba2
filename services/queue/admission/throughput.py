"""Measures how fast a line moves, from the running totals in Redis."""

from collections import deque

SPAN_MS, SPAN_MAX_MS = 10_000, 120_000
ENOUGH_CALLS = 30  # with fewer the rate is mostly chance: look back further
RATIO_WEIGHT = 0.2


class ThroughputMeter:
    """Calls per second over the last ten seconds, or up to two minutes while there are few; and the share of passed
    places that were live. Time in which nobody waited, nobody could be called or another rate held is not counted.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()
        self._scanned, self._live = 0, 0
        self._rate_per_s = 0.0
        self.live_ratio = 1.0

    def record(
        self, now_ms: int, *, calls: int, scanned: int, live: int, rate_per_s: float = 0.0, wanted: bool = True
    ) -> None:
        """Adds running totals as of `now_ms`; smaller ones than before mean that Redis was rebuilt. `wanted`: somebody
        waits and may be called.
        """
        if not wanted or rate_per_s != self._rate_per_s:
            self._samples.clear()
            self._rate_per_s = rate_per_s
        if scanned < self._scanned or (self._samples and calls < self._samples[-1][1]):
            self._samples.clear()
            self._scanned, self._live = scanned, live
        self._samples.append((now_ms, calls))
        while len(self._samples) > 2 and self._enough(*self._samples[1], now_ms, calls):
            self._samples.popleft()
        passed = scanned - self._scanned
        if passed > 0:
            weight = min(1.0, RATIO_WEIGHT + passed / 1000)
            self.live_ratio += weight * (max(0, live - self._live) / passed - self.live_ratio)
            self._scanned, self._live = scanned, live

    def _enough(self, from_ms: int, from_calls: int, now_ms: int, calls: int) -> bool:
        """Whether a span from there is long enough and has enough calls."""
        far = now_ms - from_ms
        return far >= SPAN_MAX_MS or (far >= SPAN_MS and calls - from_calls >= ENOUGH_CALLS)

    @property
    def calls_per_s(self) -> float | None:
        """None until the samples span a second."""
        if not self._samples:
            return None
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms - first_ms >= 1000 else None
