"""Whether estimates were true: some fans' promises are kept in mind and compared with their call.

A bounded sample per line, chosen by number, so that many tabs of one fan count once; a promise that was changed with a
reason counts from then on, and separately.
"""

import heapq
from typing import NamedTuple

from services.gateway.metrics import ESTIMATE_ERROR, ESTIMATE_RANGE, ESTIMATE_RATIO

EVERY = 16
SAMPLES_MAX = 512
SHORT_S = 5  # below this a ratio says nothing


class _Sample(NamedTuple):
    """What one fan was promised, and when."""

    rank: int
    lane: int
    told_s: float
    wait_s: int
    range_s: tuple[int, int]
    changed_ms: int


class Promises:
    """The sample of one line in one epoch."""

    __slots__ = ("_epoch", "_heaps", "_told", "changed_ms")

    def __init__(self) -> None:
        self._epoch = 0
        self._heaps: dict[int, list[int]] = {}
        self._told: dict[tuple[int, int], _Sample] = {}
        self.changed_ms = 0

    def tell(self, lane: int, rank: int, wait_s: int | None, *, low_s: int, high_s: int, now_s: float) -> None:
        """This fan is being told this wait, between these two."""
        if rank % EVERY or wait_s is None:
            return
        known = self._told.get((lane, rank))
        if known is None:
            if len(self._told) >= SAMPLES_MAX:
                return
            heapq.heappush(self._heaps.setdefault(lane, []), rank)
        elif known.changed_ms == self.changed_ms:
            return
        self._told[lane, rank] = _Sample(rank, lane, now_s, wait_s, (low_s, high_s), self.changed_ms)

    def reach(self, epoch: int, heads: dict[int, int], *, now_s: float) -> None:
        """The heads have come this far: whoever was passed was called, or was not there."""
        if epoch != self._epoch:
            self._epoch, self._heaps, self._told = epoch, {}, {}
        for lane, heap in self._heaps.items():
            while heap and heap[0] <= heads.get(lane, 0):
                self._judge(self._told.pop((lane, heapq.heappop(heap))), now_s)

    def _judge(self, sample: _Sample, now_s: float) -> None:
        actual_s = now_s - sample.told_s
        kept = "kept" if sample.changed_ms == self.changed_ms else "changed"
        ESTIMATE_ERROR.labels(kept).observe(abs(actual_s - sample.wait_s))
        low_s, high_s = sample.range_s
        ESTIMATE_RANGE.labels(kept, "sooner" if actual_s < low_s else "later" if actual_s > high_s else "within").inc()
        if sample.wait_s >= SHORT_S:
            ESTIMATE_RATIO.labels(kept).observe(actual_s / sample.wait_s)
