"""How long each place ahead takes: a promise to everybody in the line, which only shrinks unless something changed.

A wait is the places ahead times this. Heads never go back, so a fan's estimate never grows while the promise does not;
when it must grow, the promise says why and since when. Pure: frames in, a promise out; time is the frames' own, so that
gateways that hear the same frames promise the same.
"""

import math
from dataclasses import dataclass
from typing import Literal

from shared.contracts.frames import LineFrame

Reason = Literal["rate-lowered", "throttled", "recovering", "room-full", "fans-returned", "slower", "start-moved",
                 "paused", "stock-low", "unknown"]  # fmt: skip
STANDSTILL: dict[str, Reason] = {"paused": "paused", "last_chance": "stock-low", "sold_out": "stock-low"}
CALLING = frozenset({"open", "draining"})
BEFORE_SALE = frozenset({"draft", "prequeue"})
SMOOTH_MS = 10_000
TOLERANCE = 1.15  # measured slower than promised by less than this is noise
PATIENCE_MS = 5000
RATE_BINDS = 0.8  # measured above this share of the rate: it is the rate that holds the line up


@dataclass(frozen=True, slots=True)
class Promise:
    """Seconds per place ahead, `None` while nobody can know; the sale's start before it has come; the last reason for
    which an estimate grew or went, and when (ms). `at_ms` of 0: nothing has grown yet.
    """

    per_place_s: float | None = None
    starts_at_ms: int = 0
    reason: Reason | None = None
    at_ms: int = 0


class Estimate:
    """One line's promise, as frames come in."""

    def __init__(self) -> None:
        self.promise = Promise()
        self._pace_per_s: float | None = None
        self._learned_ms = 0
        self._slow_since_ms: int | None = None
        self._before: LineFrame | None = None

    def learn(self, frame: LineFrame) -> Promise:
        """The promise after this frame."""
        before, self._before = self._before, frame
        if before is not None and before.epoch != frame.epoch:
            before, self.promise = None, Promise()
        if not frame.ready or frame.state not in CALLING | BEFORE_SALE:
            self._pace_per_s = self._slow_since_ms = None
            return self._withdraw(_standstill(frame), frame.at_ms)
        weight = 1 - math.exp(-max(0, frame.at_ms - self._learned_ms) / SMOOTH_MS)
        self._learned_ms = max(self._learned_ms, frame.at_ms)
        pace = self._pace(frame, before, weight)
        if pace <= 0:
            return self._withdraw("paused", frame.at_ms)
        self._settle(frame, before, frame.live_ratio / pace, weight)
        return self.promise

    def doubt(self, at_ms: int) -> Promise:
        """Nothing was heard for too long."""
        return self._withdraw("unknown", at_ms)

    def _withdraw(self, reason: Reason, at_ms: int) -> Promise:
        if self.promise.per_place_s is not None or self.promise.reason != reason:
            self.promise = Promise(None, self.promise.starts_at_ms, reason, at_ms)
        return self.promise

    def _pace(self, frame: LineFrame, before: LineFrame | None, weight: float) -> float:
        """Calls per second, smoothed. A new rate counts at once where it binds; without anybody waiting, or before the
        sale, nothing is measured and the rate itself is the best guess.
        """
        rate, measured = frame.rate_per_s, frame.calls_per_s
        waiting = any(lane.tail_seq > lane.head_seq for lane in frame.lanes.values())
        if frame.state in BEFORE_SALE or measured is None or not waiting:
            self._pace_per_s = rate
            return rate
        pace = measured if self._pace_per_s is None else self._pace_per_s
        if before is not None and before.rate_per_s != rate:
            pace = rate if pace >= RATE_BINDS * before.rate_per_s else min(pace, rate)
        pace += (measured - pace) * weight
        self._pace_per_s = min(pace, rate) if rate > 0 else 0.0
        return self._pace_per_s

    def _settle(self, frame: LineFrame, before: LineFrame | None, per_place_s: float, weight: float) -> None:
        """Promises less bit by bit, more only with a reason."""
        old = self.promise
        starts_at_ms = (frame.sale_starts_at_ms or 0) if frame.state in BEFORE_SALE else 0
        reason: Reason | None = None
        if old.per_place_s is not None and old.starts_at_ms < starts_at_ms:
            reason = "start-moved"
        elif old.per_place_s is not None and per_place_s > old.per_place_s:
            reason = self._why(frame, before, old.per_place_s, per_place_s)
        else:
            self._slow_since_ms = None
        if reason is not None:
            self._slow_since_ms = None
            self.promise = Promise(max(old.per_place_s or 0, per_place_s), starts_at_ms, reason, frame.at_ms)
        else:
            promised = per_place_s if old.per_place_s is None else old.per_place_s
            promised += min(0.0, per_place_s - promised) * weight
            self.promise = Promise(promised, starts_at_ms, old.reason, old.at_ms)

    def _why(self, frame: LineFrame, before: LineFrame | None, promised: float, per_place_s: float) -> Reason | None:
        """Why more must be promised: at once when the rate was lowered, and when it lasts whatever the cause."""
        if before is not None and frame.rate_per_s < before.rate_per_s:
            if frame.throttled is None:
                return "rate-lowered"
            return "recovering" if frame.throttled.reason == "recovering" else "throttled"
        if per_place_s < promised * TOLERANCE:
            self._slow_since_ms = None
            return None
        self._slow_since_ms = frame.at_ms if self._slow_since_ms is None else self._slow_since_ms
        if frame.at_ms - self._slow_since_ms < PATIENCE_MS:
            return None
        if frame.full:
            return "room-full"
        pace = frame.live_ratio / per_place_s
        return "fans-returned" if pace >= RATE_BINDS * frame.rate_per_s else "slower"


def _standstill(frame: LineFrame) -> Reason:
    return STANDSTILL.get(frame.state, "unknown") if frame.ready else "unknown"
