"""How long each place ahead takes: a promise to everybody in the line, which only shrinks unless something changed.

A wait is the places ahead times this, told as a range. It moves slowly both ways. Heads never go back, so a wait never
grows while the promise does not; when it must grow, the promise says why and since when. While nobody is called there
is none. Pure: frames in, a promise out; time is theirs, so gateways that hear the same frames promise the same.

Whether estimates were true: some fans' promises are kept in mind and compared with their call.

A bounded sample per line, chosen by number, so that many tabs of one fan count once; a promise that was changed with a
reason counts from then on, and separately.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from services.gateway.metrics import ESTIMATE_ERROR, ESTIMATE_RANGE, ESTIMATE_RATIO
from shared.contracts.frames import LineFrame

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


class EstimateAccuracy:
    """The sample of one line in one epoch."""

    __slots__ = ("_epoch", "_heaps", "_told", "changed_ms")

    def __init__(self) -> None:
        self._epoch = 0
        self._heaps: dict[int, list[int]] = {}
        self._told: dict[tuple[int, int], _Sample] = {}
        self.changed_ms = 0

    def record(self, lane: int, rank: int, wait_s: int | None, *, low_s: int, high_s: int, now_s: float) -> None:
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

    def evaluate(self, epoch: int, heads: dict[int, int], *, now_s: float) -> None:
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


Reason = Literal["rate-lowered", "throttled", "recovering", "room-full", "fans-returned", "slower", "start-moved",
                 "paused", "stock-low", "unknown"]  # fmt: skip
STANDSTILL: dict[str, Reason] = {"paused": "paused", "last_chance": "stock-low", "sold_out": "stock-low"}
CALLING = frozenset({"open", "draining"})
BEFORE_SALE = frozenset({"draft", "prequeue"})
SMOOTH_MS = 30_000
TOLERANCE = 1.15  # measured slower than promised by less than this is noise
PATIENCE_MS = 10_000
STEP_MAX = 1.5  # neither way further than this within `PATIENCE_MS`, but for what changed at once
RATE_BINDS = 0.8  # measured above this share of the rate: it is the rate that holds the line up
BLAME_MS = 60_000  # what changed at once may go on making itself felt for so long
STOCK_CALM_MS = 10_000  # stock that held the line up is forgotten after so long without
STILL_MS, STILL_GAPS = 15_000, 3.0  # nobody is called: for so long, and for so many times the usual time between calls
BAND, BAND_MAX, BAND_MS = 0.2, 0.9, 120_000  # half the width of a range, as a logarithm, and how fast it narrows


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """Seconds per place ahead, `None` while nobody can know; the sale's start before it has come; the last reason for
    which an estimate grew or went, and when (ms). `at_ms` of 0: nothing has grown yet. `band`: how unsure it is; the
    truth may be a factor of e^band away.
    """

    per_place_s: float | None = None
    starts_at_ms: int = 0
    reason: Reason | None = None
    at_ms: int = 0
    band: float = BAND


class WaitEstimator:
    """One line's promise, as frames come in."""

    def __init__(self) -> None:
        self.promise = WaitEstimate()
        self._pace_per_s: float | None = None
        self._learned_ms = 0
        self._slow_since_ms: int | None = None
        self._before: LineFrame | None = None
        self._lowered: tuple[Reason, float, int] | None = None
        self._stock_bound_ms: int | None = None
        self._waits_since_ms: int | None = None

    def observe(self, frame: LineFrame) -> WaitEstimate:
        """The promise after this frame."""
        before, self._before = self._before, frame
        if before is not None and before.epoch != frame.epoch:
            before, self.promise = None, WaitEstimate()
        if not frame.ready or frame.state not in CALLING | BEFORE_SALE:
            self._pace_per_s = self._slow_since_ms = self._waits_since_ms = None
            return self._withdraw(_standstill(frame), frame.at_ms)
        passed_ms = max(0, frame.at_ms - self._learned_ms)
        self._learned_ms = max(self._learned_ms, frame.at_ms)
        pace = self._pace(frame, before, 1 - math.exp(-passed_ms / SMOOTH_MS))
        if pace <= 0:
            return self._withdraw("paused", frame.at_ms)
        if self._stock_binds(frame):
            return self._withdraw("stock-low", frame.at_ms)
        if self._stands_still(frame, pace):
            return self._withdraw("room-full" if frame.full else "slower", frame.at_ms)
        self._settle(frame, before, frame.live_ratio / pace, passed_ms)
        return self.promise

    def withdraw(self, at_ms: int) -> WaitEstimate:
        """Nothing was heard for too long."""
        return self._withdraw("unknown", at_ms)

    def _withdraw(self, reason: Reason, at_ms: int) -> WaitEstimate:
        if self.promise.per_place_s is not None or self.promise.reason != reason:
            self.promise = WaitEstimate(None, self.promise.starts_at_ms, reason, at_ms)
        return self.promise

    def _stock_binds(self, frame: LineFrame) -> bool:
        """Calls wait for tickets that come back, now or a moment ago."""
        if frame.stock_bound:
            self._stock_bound_ms = frame.at_ms
        return self._stock_bound_ms is not None and frame.at_ms - self._stock_bound_ms < STOCK_CALM_MS

    def _stands_still(self, frame: LineFrame, pace_per_s: float) -> bool:
        """Fans wait and may be called, but nobody has been for much longer than usual."""
        if frame.state in BEFORE_SALE or not _waits(frame):
            self._waits_since_ms = None
            return False
        if self._waits_since_ms is None:
            self._waits_since_ms = frame.at_ms
        if frame.called_at_ms is None:
            return False
        still_ms = frame.at_ms - max(frame.called_at_ms, self._waits_since_ms)
        return still_ms > max(STILL_MS, STILL_GAPS * 1000 / pace_per_s)

    def _pace(self, frame: LineFrame, before: LineFrame | None, weight: float) -> float:
        """Calls per second, smoothed. A new rate counts at once where it binds; without anybody waiting, or before the
        sale, nothing is measured and the rate itself is the best guess.
        """
        rate, measured = frame.rate_per_s, frame.calls_per_s
        if frame.state in BEFORE_SALE or measured is None or not _waits(frame):
            self._pace_per_s = rate
            return rate
        pace = measured if self._pace_per_s is None else self._pace_per_s
        if before is not None and before.rate_per_s != rate:
            pace = rate if pace >= RATE_BINDS * before.rate_per_s else min(pace, rate)
        pace += (measured - pace) * weight
        self._pace_per_s = min(pace, rate) if rate > 0 else 0.0
        return self._pace_per_s

    def _settle(self, frame: LineFrame, before: LineFrame | None, per_place_s: float, passed_ms: int) -> None:
        """Promises less bit by bit, more only with a reason, and either by no more than a step at a time."""
        old = self.promise
        starts_at_ms = (frame.sale_starts_at_ms or 0) if frame.state in BEFORE_SALE else 0
        if old.per_place_s is None:
            self._slow_since_ms = None
            self.promise = WaitEstimate(per_place_s, starts_at_ms, old.reason, old.at_ms)
            return
        band = self._band(old, per_place_s, passed_ms)
        reason: Reason | None = None
        least = per_place_s
        if old.starts_at_ms < starts_at_ms:
            reason, least = "start-moved", max(old.per_place_s, per_place_s)
        elif per_place_s > old.per_place_s:
            reason, least = self._why(frame, before, old.per_place_s, per_place_s)
        else:
            self._slow_since_ms = None
        if reason is not None:
            self._slow_since_ms = None
            self.promise = WaitEstimate(least, starts_at_ms, reason, frame.at_ms, band)
        else:
            share = 1 - math.exp(-passed_ms / SMOOTH_MS)
            sink = min(0.0, math.log(per_place_s / old.per_place_s)) * share
            sink = max(sink, -math.log(STEP_MAX) * passed_ms / PATIENCE_MS)
            self.promise = WaitEstimate(old.per_place_s * math.exp(sink), starts_at_ms, old.reason, old.at_ms, band)

    def _band(self, old: WaitEstimate, per_place_s: float, passed_ms: int) -> float:
        """As wide as what is measured is away from what is promised; it narrows again bit by bit."""
        assert old.per_place_s is not None
        apart = abs(math.log(per_place_s / old.per_place_s))
        return min(BAND_MAX, max(BAND, apart, BAND + (old.band - BAND) * math.exp(-passed_ms / BAND_MS)))

    def _why(
        self, frame: LineFrame, before: LineFrame | None, promised: float, per_place_s: float
    ) -> tuple[Reason | None, float]:
        """Why more must be promised, and how much: all at once when the rate was lowered, and by a step when it lasts
        whatever the cause. The largest cause is named: a lowered rate as long as it accounts for what was added.
        """
        grown = per_place_s / promised
        if before is not None and frame.rate_per_s < before.rate_per_s:
            reason: Reason = "rate-lowered"
            if frame.throttled is not None:
                reason = "recovering" if frame.throttled.reason == "recovering" else "throttled"
            self._lowered = reason, grown, frame.at_ms
            return reason, per_place_s
        if grown < TOLERANCE:
            self._slow_since_ms = None
            return None, promised
        self._slow_since_ms = frame.at_ms if self._slow_since_ms is None else self._slow_since_ms
        if frame.at_ms - self._slow_since_ms < PATIENCE_MS:
            return None, promised
        return self._lasting(frame, grown, per_place_s), min(per_place_s, promised * STEP_MAX)

    def _lasting(self, frame: LineFrame, grown: float, per_place_s: float) -> Reason:
        if self._lowered is not None and frame.at_ms - self._lowered[2] < BLAME_MS and self._lowered[1] >= grown:
            return self._lowered[0]
        if frame.full:
            return "room-full"
        pace = frame.live_ratio / per_place_s
        return "fans-returned" if pace >= RATE_BINDS * frame.rate_per_s else "slower"


def _waits(frame: LineFrame) -> bool:
    return any(lane.tail_seq > lane.head_seq for lane in frame.lanes.values())


def _standstill(frame: LineFrame) -> Reason:
    return STANDSTILL.get(frame.state, "unknown") if frame.ready else "unknown"
