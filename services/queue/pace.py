"""How fast the line moves, measured from the engine's running totals."""

from collections import deque

SPAN_MS = 10_000
RATIO_WEIGHT = 0.2


class Pace:
    """Calls per second over the last ten seconds, and the share of places passed that were live.

    Time in which nobody waited or nobody could be called says nothing of how fast the line moves: it is left out.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()
        self._scanned, self._live = 0, 0
        self.live_ratio = 1.0

    def note(self, now_ms: int, *, calls: int, scanned: int, live: int, wanted: bool = True) -> None:
        """Running totals as of `now_ms`; smaller ones than before mean that the engine was filled anew. `wanted`:
        somebody waits and may be called.
        """
        if not wanted:
            self._samples.clear()
        if scanned < self._scanned or (self._samples and calls < self._samples[-1][1]):
            self._samples.clear()
            self._scanned, self._live = scanned, live
        self._samples.append((now_ms, calls))
        while len(self._samples) > 2 and self._samples[1][0] <= now_ms - SPAN_MS:
            self._samples.popleft()
        passed = scanned - self._scanned
        if passed > 0:
            weight = min(1.0, RATIO_WEIGHT + passed / 1000)
            self.live_ratio += weight * (max(0, live - self._live) / passed - self.live_ratio)
            self._scanned, self._live = scanned, live

    @property
    def calls_per_s(self) -> float | None:
        """Nothing until there is a second's worth of samples."""
        if not self._samples:
            return None
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms - first_ms >= 1000 else None
