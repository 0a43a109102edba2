"""One event's line as this process last heard of it: everything a waiting fan is told is arithmetic on this.

Heads never go back within an epoch, so a position never rises.
"""

import math
from typing import Any

import orjson

from shared.clock import now_ms, rfc3339
from shared.contracts.frames import LaneHead, LineFrame
from shared.contracts.lanes import Lane

BODY_FRESH_MS = 1_000
CALLING = frozenset({"open", "draining"})
BEFORE_SALE = frozenset({"draft", "prequeue"})
JITTER_STEPS = 64


class Pace:
    """Calls per second, smoothed over about ten seconds, so that estimates do not jump with every tick."""

    SMOOTH_S = 10.0

    def __init__(self) -> None:
        self._per_s: float | None = None
        self._learned_s = 0.0

    def learn(self, frame: LineFrame, *, now_s: float) -> float | None:
        """The pace after this frame; without somebody waiting the measured rate says nothing, so the set one counts."""
        if frame.state not in CALLING or not frame.ready:
            self._per_s = None
            return None
        waiting = any(lane.tail_seq > lane.head_seq for lane in frame.lanes.values())
        if self._per_s is None or frame.calls_per_s is None or not waiting:
            self._per_s = frame.rate_per_s
        else:
            weight = 1 - math.exp(-(now_s - self._learned_s) / self.SMOOTH_S)
            self._per_s += (frame.calls_per_s - self._per_s) * weight
        self._learned_s = now_s
        return self._per_s if self._per_s > 0 else None


class Line:
    """A frame and what follows from it. `calls_per_s` is the smoothed pace, `None` while unknown or paused."""

    __slots__ = ("_body", "_body_at_ms", "_per_live_s", "_poll_max_ms", "_poll_min_ms", "_shares", "before_sale",
                 "closed_lanes", "epoch", "etag", "frame", "heads", "heard_s", "message",
                 "rollout_percent")  # fmt: skip

    epoch: int
    heads: dict[int, int]

    def __init__(
        self,
        frame: LineFrame,
        previous: "Line | None" = None,
        *,
        calls_per_s: float | None,
        heard_s: float,
        poll_ms: tuple[int, int],
    ) -> None:
        kept = previous.heads if previous is not None and previous.epoch == frame.epoch else {}
        self.frame = frame
        self.epoch = frame.epoch
        self.heads = {**kept, **{lane: max(at.head_seq, kept.get(lane, 0)) for lane, at in frame.lanes.items()}}
        self.closed_lanes = frozenset(lane.lane for lane in frame.options.lanes if lane.opens_ms > frame.at_ms)
        self._shares = shares(frame, self.closed_lanes)
        self.before_sale = frame.state in BEFORE_SALE
        self.message = frame.message
        self.rollout_percent = frame.options.rollout_percent
        self.heard_s = heard_s
        self.etag = f'W/"{frame.epoch}.{frame.version}"'.encode()
        self._per_live_s = frame.live_ratio / calls_per_s if calls_per_s else None
        self._poll_max_ms = min(poll_ms[1], frame.liveness_window_s * 1000)
        self._poll_min_ms = min(poll_ms[0], self._poll_max_ms)
        self._body, self._body_at_ms = b"", 0

    def position(self, lane: int, join_seq: int) -> int:
        """How many places stand between this one and the head: an upper bound of how many fans."""
        return max(0, join_seq - self.heads.get(lane, 0))

    def estimated_wait_s(self, position: int, lane: int = 0) -> int | None:
        """Seconds until this position is called at the lane's present pace; `None` while nobody can know."""
        share = self._shares.get(lane, 0)
        if self._per_live_s is None or position == 0 or share == 0:
            return None
        return max(1, math.ceil(position * self._per_live_s / share))

    def poll_after_ms(self, wait_s: int | None, join_seq: int) -> int:
        """When to ask again: half the wait, within limits and never past one liveness window, spread by place."""
        longest = self._poll_max_ms if wait_s is None else min(self._poll_max_ms, wait_s * 500)
        spread = longest * (join_seq % JITTER_STEPS) // (JITTER_STEPS * 5)
        return max(self._poll_min_ms, longest - spread)

    @property
    def promises(self) -> bool:
        """Whether estimates are given at all."""
        return self._per_live_s is not None

    def soon_ms(self) -> int:
        """When to ask again for a fan whose turn is near."""
        return self._poll_min_ms

    def body(self) -> bytes:
        """The line as everybody sees it, encoded once per frame and second."""
        at_ms = now_ms()
        if at_ms - self._body_at_ms > BODY_FRESH_MS:
            self._body, self._body_at_ms = orjson.dumps(self._public(at_ms), option=orjson.OPT_NON_STR_KEYS), at_ms
        return self._body

    def _public(self, at_ms: int) -> dict[str, Any]:
        frame = self.frame
        rules = {lane.lane: lane for lane in frame.options.lanes}
        lanes = {lane: self._lane(lane, at) | told(rules.get(lane)) for lane, at in frame.lanes.items()}
        general = lanes.pop(0, {"head_seq": 0, "tail_seq": 0})
        starts_ms = frame.sale_starts_at_ms
        public = {
            "state": frame.state,
            "epoch": frame.epoch,
            **general,
            "rate_per_s": frame.rate_per_s,
            "live_ratio": frame.live_ratio,
            "message": frame.message,
            "sale_starts_at": rfc3339(starts_ms) if starts_ms is not None else None,
            "server_time": rfc3339(at_ms),
        }
        return {**public, "lanes": lanes} if lanes else public

    def _lane(self, lane: int, at: LaneHead) -> dict[str, Any]:
        head_seq = self.heads[lane]
        return {"head_seq": head_seq, "tail_seq": max(at.tail_seq, head_seq)}


def shares(frame: LineFrame, closed_lanes: frozenset[int]) -> dict[int, float]:
    """The part of all calls each lane gets while those others have somebody waiting; 0 before its start."""
    weights = {lane.lane: lane.weight for lane in frame.options.lanes if lane.lane not in closed_lanes}
    waiting = {lane: weights.get(lane, 0) for lane, at in frame.lanes.items() if at.tail_seq > at.head_seq}
    return {lane: weight / sum({**waiting, lane: weight}.values()) for lane, weight in weights.items()}


def told(lane: Lane | None) -> dict[str, Any]:
    """What everybody may know of a lane's rules."""
    if lane is None:
        return {}
    opens = {"opens_at": rfc3339(lane.opens_ms)} if lane.opens_ms else {}
    return opens if lane.lane == 0 else {"name": lane.name, "code_required": lane.code_required, **opens}
