"""Estimates of a simulated hour with changes of rate, throttling, a pause and slow buyers, compared with the calls.

The actual wait must lie within the range often enough, and no estimate may change much without a reason.
"""

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway.waiting_line.wait_estimate import WaitEstimator
from services.queue.admission.throughput import ThroughputMeter
from shared.contracts.frames import Throttled
from tests.gateway.frames import START_MS, line_frame, snapshot

PLACES, LIVE, SLOTS, HOUR_S, POLL_EVERY_S = 16_000, 0.7, 900, 3600, 10
RATES = {0: 6.0, 600: 2.0, 1200: 8.0, 2700: 5.0}  # second: the rate that the operator sets
THROTTLED = range(2800, 2980)  # to one half
PAUSED = range(3300, 3360)
SLOW = range(1800, 2600)  # sessions last four times as long, and the room is full
CHANGE_MAX = 1.6  # within ten seconds
CHANGES = {*RATES, *(end for span in (THROTTLED, PAUSED, SLOW) for end in (span.start, span.stop))}


@dataclass
class Estimate:
    """What one fan was shown at one moment."""

    at_s: int
    seq: int
    wait_s: int | None
    low_s: int | None
    high_s: int | None
    changed_ms: int


@dataclass
class Hour:
    """All estimates, and when the fans were called; `reasons` has the time and reason of each change."""

    estimates: list[Estimate] = field(default_factory=list)
    called_s: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, Any] = field(default_factory=dict)

    def share_within(self, *, kept: bool) -> float:
        """The share of ranges that contained the actual wait; `kept`: only those with no change before the call."""
        within = [
            each.low_s <= called_s - each.at_s <= each.high_s
            for each in self.estimates
            if each.low_s is not None and each.high_s is not None
            and (called_s := self.called_s.get(each.seq)) is not None
            and not (kept and any(each.at_s < change <= called_s for change in CHANGES))
        ]  # fmt: skip
        assert len(within) > 100
        return sum(within) / len(within)

    def largest_unexplained_change(self) -> float:
        """The log of the largest factor between two successive estimates of a fan without a reason."""
        by_fan: dict[int, list[Estimate]] = {}
        for each in self.estimates:
            by_fan.setdefault(each.seq, []).append(each)
        return max(
            (abs(math.log((b.wait_s + POLL_EVERY_S / 2) / max(1, a.wait_s - POLL_EVERY_S / 2)))
             for fan in by_fan.values() for a, b in itertools.pairwise(fan)
             if a.wait_s is not None and b.wait_s is not None and a.changed_ms == b.changed_ms and a.wait_s > 120),
            default=0.0,
        )  # fmt: skip


def simulate_hour(seed: int) -> Hour:
    rng, meter, estimator, hour = random.Random(seed), ThroughputMeter(), WaitEstimator(), Hour()
    live = [rng.random() < LIVE for _ in range(PLACES + 1)]
    session_ends: list[float] = []
    head = calls = live_found = 0
    tokens, rate, shown, called_at = 0.0, 0.0, None, 0
    for t in range(HOUR_S):
        rate = RATES.get(t, rate)
        effective_rate = rate * (0.5 if t in THROTTLED else 1)
        while session_ends and session_ends[0] <= t:
            heapq.heappop(session_ends)
        tokens = min(effective_rate, tokens + effective_rate) if t not in PAUSED else 0.0
        while tokens >= 1 and len(session_ends) < SLOTS and head < PLACES:
            head += 1
            hour.called_s[head] = t
            if live[head]:
                heapq.heappush(session_ends, t + rng.expovariate(1 / (480 if t in SLOW else 120)))
                tokens, calls, live_found, called_at = tokens - 1, calls + 1, live_found + 1, t
        at_ms, is_open = START_MS + t * 1000, t not in PAUSED
        meter.record(at_ms, calls=calls, scanned=head, live=live_found, rate_per_s=effective_rate, wanted=is_open)
        measured = meter.calls_per_s
        frame = line_frame(
            at_ms, head=head, tail=PLACES, state="open" if is_open else "paused", rate_per_s=effective_rate,
            live_ratio=max(0.01, round(meter.live_ratio, 2)),
            calls_per_s=None if measured is None else round(measured, 3), full=len(session_ends) >= SLOTS,
            called_at_ms=START_MS + called_at * 1000,
            throttled=Throttled(factor=0.5, reason="orders-slow") if t in THROTTLED else None,
        )  # fmt: skip
        shown = snapshot(frame, shown, estimate=estimator.observe(frame))
        if shown.estimate.reason:
            hour.reasons[shown.estimate.at_ms] = (t, shown.estimate.reason)
        for seq in range(97, PLACES, 397) if t % POLL_EVERY_S == 5 else ():
            if (position := shown.position(0, seq)) > 0:
                wait_s, low_s, high_s = shown.estimates(position).values()
                changed_ms = shown.estimate.at_ms
                hour.estimates.append(Estimate(t, seq, wait_s, low_s=low_s, high_s=high_s, changed_ms=changed_ms))
    return hour


@pytest.mark.parametrize("seed", range(3))
def test_the_actual_wait_lies_in_the_range_and_no_estimate_jumps_without_a_reason(seed: int) -> None:
    hour = simulate_hour(seed)
    assert hour.share_within(kept=True) >= 0.88
    assert hour.share_within(kept=False) >= 0.4, "an estimate cannot foresee the nine changes of the hour"
    assert hour.largest_unexplained_change() <= math.log(CHANGE_MAX)
    named = {reason for _, reason in hour.reasons.values()}
    assert {"rate-lowered", "throttled", "room-full", "paused"} <= named
