"""The wait estimate: seconds per place ahead, which only shrink unless something changed, and its measured accuracy.

A wait is the number of places ahead times this estimate, given as a range. It moves slowly both ways. Heads never go
back, so a wait never grows while the estimate does not; when the estimate must grow, it names the reason and the time.
While nobody is called there is none. Estimates depend on the frames and their times only, so all gateways that get the
same frames give the same estimates.

Accuracy is measured on a bounded sample per line, chosen by `join_seq`, so that many tabs of one fan count once. After
a change with a reason, a sample counts from then on and under another label.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from services.gateway.metrics import ESTIMATE_ERROR, ESTIMATE_RANGE, ESTIMATE_RATIO
from shared.contracts.frames import LineFrame

SAMPLE_EVERY = 16
SAMPLES_MAX = 512
RATIO_MIN_S = 5  # of a shorter wait the ratio means nothing


class _Sample(NamedTuple):
    """The estimate that one fan got, and when."""

    recorded_s: float
    wait_s: int
    range_s: tuple[int, int]
    changed_ms: int


class EstimateAccuracy:
    """Samples estimates of one line in one epoch and compares them with the calls."""

    __slots__ = ("_epoch", "_heaps", "_samples", "changed_ms")

    def __init__(self) -> None:
        self._epoch = 0
        self._heaps: dict[int, list[int]] = {}
        self._samples: dict[tuple[int, int], _Sample] = {}
        self.changed_ms = 0

    def record(self, lane: int, rank: int, wait_s: int | None, *, low_s: int, high_s: int, now_s: float) -> None:
        """Samples the estimate that this place is about to get."""
        if rank % SAMPLE_EVERY or wait_s is None:
            return
        known = self._samples.get((lane, rank))
        if known is None:
            if len(self._samples) >= SAMPLES_MAX:
                return
            heapq.heappush(self._heaps.setdefault(lane, []), rank)
        elif known.changed_ms == self.changed_ms:
            return
        self._samples[lane, rank] = _Sample(
            recorded_s=now_s, wait_s=wait_s, range_s=(low_s, high_s), changed_ms=self.changed_ms
        )

    def evaluate(self, epoch: int, heads: dict[int, int], *, now_s: float) -> None:
        """Compares the samples of all places that these heads have passed, and forgets them."""
        if epoch != self._epoch:
            self._epoch, self._heaps, self._samples = epoch, {}, {}
        for lane, heap in self._heaps.items():
            while heap and heap[0] <= heads.get(lane, 0):
                self._observe(self._samples.pop((lane, heapq.heappop(heap))), now_s)

    def _observe(self, sample: _Sample, now_s: float) -> None:
        actual_s = now_s - sample.recorded_s
        label = "kept" if sample.changed_ms == self.changed_ms else "changed"
        ESTIMATE_ERROR.labels(label).observe(abs(actual_s - sample.wait_s))
        low_s, high_s = sample.range_s
        ESTIMATE_RANGE.labels(label, "sooner" if actual_s < low_s else "later" if actual_s > high_s else "within").inc()
        if sample.wait_s >= RATIO_MIN_S:
            ESTIMATE_RATIO.labels(label).observe(actual_s / sample.wait_s)


Reason = Literal["rate-lowered", "throttled", "recovering", "room-full", "fans-returned", "slower", "start-moved",
                 "paused", "stock-low", "unknown"]  # fmt: skip
STALL_REASONS: dict[str, Reason] = {"paused": "paused", "last_chance": "stock-low", "sold_out": "stock-low"}
CALLING = frozenset({"open", "draining"})
BEFORE_SALE = frozenset({"draft", "prequeue"})
SMOOTH_MS = 30_000
TOLERANCE = 1.15  # slower than estimated by less than this factor is noise
PATIENCE_MS = 10_000
STEP_MAX = 1.5  # largest factor of change within `PATIENCE_MS`, except when the rate was lowered
RATE_BINDS = 0.8  # calls above this share of the rate: the rate is the limit
CAUSE_LASTS_MS = 60_000  # how long a lowered rate may go on being the reason
STOCK_CALM_MS = 10_000  # how long the line counts as stock-bound after it last was
STALL_MS, STALL_GAPS = 15_000, 3.0  # stalled: no call for so long, and for so many usual intervals
# half the width of a range as a logarithm, its maximum, and how fast it narrows
BAND, BAND_MAX, BAND_MS = 0.2, 0.9, 120_000


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """`per_place_s`: seconds per place ahead, `None` while unknown. `starts_at_ms`: the sale's start while it is ahead.
    `reason` and `at_ms`: why and when the estimate last grew or was withdrawn; 0 if never. `band`: its uncertainty; the
    actual wait may be a factor of e^band away.
    """

    per_place_s: float | None = None
    starts_at_ms: int = 0
    reason: Reason | None = None
    at_ms: int = 0
    band: float = BAND


class WaitEstimator:
    """Updates one line's estimate by its frames."""

    def __init__(self) -> None:
        self.current = WaitEstimate()
        self._pace_per_s: float | None = None
        self._observed_ms = 0
        self._slow_since_ms: int | None = None
        self._previous: LineFrame | None = None
        self._lowered: tuple[Reason, float, int] | None = None
        self._stock_bound_ms: int | None = None
        self._waiting_since_ms: int | None = None

    def observe(self, frame: LineFrame) -> WaitEstimate:
        """The estimate after this frame."""
        previous, self._previous = self._previous, frame
        if previous is not None and previous.epoch != frame.epoch:
            previous, self.current = None, WaitEstimate()
        if not frame.ready or frame.state not in CALLING | BEFORE_SALE:
            self._pace_per_s = self._slow_since_ms = self._waiting_since_ms = None
            return self.withdraw(STALL_REASONS.get(frame.state, "unknown") if frame.ready else "unknown", frame.at_ms)
        passed_ms = max(0, frame.at_ms - self._observed_ms)
        self._observed_ms = max(self._observed_ms, frame.at_ms)
        pace = self._pace(frame, previous, 1 - math.exp(-passed_ms / SMOOTH_MS))
        if pace <= 0:
            return self.withdraw("paused", frame.at_ms)
        if self._is_stock_bound(frame):
            return self.withdraw("stock-low", frame.at_ms)
        if self._is_stalled(frame, pace):
            return self.withdraw("room-full" if frame.full else "slower", frame.at_ms)
        self._adjust(frame, previous, frame.live_ratio / pace, passed_ms)
        return self.current

    def withdraw(self, reason: Reason, at_ms: int) -> WaitEstimate:
        """Withdraws the estimate, until a frame gives a new one."""
        if self.current.per_place_s is not None or self.current.reason != reason:
            self.current = WaitEstimate(None, self.current.starts_at_ms, reason, at_ms)
        return self.current

    def _is_stock_bound(self, frame: LineFrame) -> bool:
        """Whether calls wait for returned tickets, or did a moment ago."""
        if frame.stock_bound:
            self._stock_bound_ms = frame.at_ms
        return self._stock_bound_ms is not None and frame.at_ms - self._stock_bound_ms < STOCK_CALM_MS

    def _is_stalled(self, frame: LineFrame, pace_per_s: float) -> bool:
        """Whether fans wait in an open line but none was called for much longer than usual."""
        if frame.state in BEFORE_SALE or not frame.has_waiting:
            self._waiting_since_ms = None
            return False
        if self._waiting_since_ms is None:
            self._waiting_since_ms = frame.at_ms
        if frame.called_at_ms is None:
            return False
        stalled_ms = frame.at_ms - max(frame.called_at_ms, self._waiting_since_ms)
        return stalled_ms > max(STALL_MS, STALL_GAPS * 1000 / pace_per_s)

    def _pace(self, frame: LineFrame, previous: LineFrame | None, weight: float) -> float:
        """Calls per second, smoothed. A new rate counts at once where the rate is the limit. Before the sale and while
        nobody waits nothing is measured: then it is the rate itself.
        """
        rate, measured = frame.rate_per_s, frame.calls_per_s
        if frame.state in BEFORE_SALE or measured is None or not frame.has_waiting:
            self._pace_per_s = rate
            return rate
        pace = measured if self._pace_per_s is None else self._pace_per_s
        if previous is not None and previous.rate_per_s != rate:
            pace = rate if pace >= RATE_BINDS * previous.rate_per_s else min(pace, rate)
        pace += (measured - pace) * weight
        self._pace_per_s = min(pace, rate) if rate > 0 else 0.0
        return self._pace_per_s

    def _adjust(self, frame: LineFrame, previous: LineFrame | None, per_place_s: float, passed_ms: int) -> None:
        """Shrinks the estimate gradually, grows it only with a reason, and limits the step of either."""
        old = self.current
        starts_at_ms = (frame.sale_starts_at_ms or 0) if frame.state in BEFORE_SALE else 0
        if old.per_place_s is None:
            self._slow_since_ms = None
            self.current = WaitEstimate(per_place_s, starts_at_ms, old.reason, old.at_ms)
            return
        distance = abs(math.log(per_place_s / old.per_place_s))  # the range is as wide, and narrows again gradually
        band = min(BAND_MAX, max(BAND, distance, BAND + (old.band - BAND) * math.exp(-passed_ms / BAND_MS)))
        reason: Reason | None = None
        new_s = per_place_s
        if old.starts_at_ms < starts_at_ms:
            reason, new_s = "start-moved", max(old.per_place_s, per_place_s)
        elif per_place_s > old.per_place_s:
            reason, new_s = self._growth_reason(frame, previous, old.per_place_s, per_place_s)
        else:
            self._slow_since_ms = None
        if reason is not None:
            self._slow_since_ms = None
            self.current = WaitEstimate(new_s, starts_at_ms, reason, frame.at_ms, band)
        else:
            share = 1 - math.exp(-passed_ms / SMOOTH_MS)
            shrink = min(0.0, math.log(per_place_s / old.per_place_s)) * share
            shrink = max(shrink, -math.log(STEP_MAX) * passed_ms / PATIENCE_MS)
            self.current = WaitEstimate(old.per_place_s * math.exp(shrink), starts_at_ms, old.reason, old.at_ms, band)

    def _growth_reason(
        self, frame: LineFrame, previous: LineFrame | None, estimated: float, per_place_s: float
    ) -> tuple[Reason | None, float]:
        """Why the estimate must grow, and to what: to the measured value when the rate was lowered, by one step when
        the line has been slower for long. A lowered rate stays the reason as long as it accounts for the growth.
        """
        growth = per_place_s / estimated
        if previous is not None and frame.rate_per_s < previous.rate_per_s:
            reason = _throttle_reason(frame) or "rate-lowered"
            self._lowered = reason, growth, frame.at_ms
            return reason, per_place_s
        if growth < TOLERANCE:
            self._slow_since_ms = None
            return None, estimated
        self._slow_since_ms = frame.at_ms if self._slow_since_ms is None else self._slow_since_ms
        if frame.at_ms - self._slow_since_ms < PATIENCE_MS:
            return None, estimated
        return self._lasting_reason(frame, growth, per_place_s), min(per_place_s, estimated * STEP_MAX)

    def _lasting_reason(self, frame: LineFrame, growth: float, per_place_s: float) -> Reason:
        if self._lowered is not None and frame.at_ms - self._lowered[2] < CAUSE_LASTS_MS and self._lowered[1] >= growth:
            return self._lowered[0]
        if frame.full:
            return "room-full"
        if reason := _throttle_reason(frame):
            return reason
        pace = frame.live_ratio / per_place_s
        return "fans-returned" if pace >= RATE_BINDS * frame.rate_per_s else "slower"


def _throttle_reason(frame: LineFrame) -> Reason | None:
    if frame.throttled is None:
        return None
    return "recovering" if frame.throttled.reason == "recovering" else "throttled"
