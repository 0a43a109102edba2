"""A snapshot of one event's line: position and wait of a waiting fan are computed from it, without I/O.

Heads never go back within an epoch, so a position never rises; the frames of two gateways may differ for a moment.
Each lane's share of the calls is its weight among the lanes with fans waiting now or a moment ago. A shrinking share
makes estimates grow, so the time of the last shrinking is kept and given as the reason.

In a long line the fans who are not near the head read the public line, the same bytes for all, which a cache in front
answers. Their pages compute from it what their status would say, and ask for the status itself as a heartbeat only.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.gateway.waiting_line.wait_estimate import BEFORE_SALE, WaitEstimate
from shared.contracts.frames import LaneHead, LineFrame
from shared.contracts.ranking import ranking_of
from shared.contracts.room_options import Lane
from shared.runtime.clock import now_ms, rfc3339

WAITED_RECENTLY_MS = 30_000


@dataclass(frozen=True, slots=True)
class LaneWeights:
    """Per lane: its share of calls (absent before the lane opens), when fans last waited, when the share shrank."""

    shares: dict[int, float] = field(default_factory=dict)
    waited_ms: dict[int, int] = field(default_factory=dict)
    shrank_ms: dict[int, int] = field(default_factory=dict)

    def after(self, frame: LineFrame, closed_lanes: frozenset[int]) -> "LaneWeights":
        """The shares after this frame of the same line."""
        now_ms = frame.at_ms
        waits = {lane: now_ms for lane, at in frame.lanes.items() if at.tail_seq > at.head_seq}
        waited = {lane: ms for lane, ms in {**self.waited_ms, **waits}.items() if now_ms - ms <= WAITED_RECENTLY_MS}
        weights = {lane.lane: lane.weight for lane in frame.options.lanes if lane.lane not in closed_lanes}
        wanting = {lane: weights[lane] for lane in waited if lane in weights}
        shares = {lane: weight / sum({**wanting, lane: weight}.values()) for lane, weight in weights.items()}
        shrank = {lane: now_ms for lane, share in shares.items() if share < self.shares.get(lane, 0.0)}
        return LaneWeights(shares, waited, {**self.shrank_ms, **shrank})


BODY_FRESH_MS = 1_000
JITTER_STEPS = 64
ESTIMATE_MAX_S = 86_400  # a longer wait is given as "more than a day"
MORE_CALLS = 1_000  # beyond the tickets left, for those that are returned
ADMISSION_DELAY_S = 2  # a tick of the admission loop, and the frame's way here
CALLS_AT_ONCE = 100  # beyond the rate, as of a burst
HEARTBEAT_WINDOWS = 1.5  # a place counts as live for two windows at least, and heartbeats are reported within a quarter
LINE_READS = 10  # as many reads of the public line for each poll of the budget
NEAR_S = 10  # a page that reads the line asks for its status so much earlier than it would read the call there
LIVE_RATIO_MIN = 0.05
ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class Polls:
    """How often fans may poll: the shortest and longest time between two, and how many polls a second are many.

    The first of a line, as many as make `per_s` polls at the longest time and as the tickets reach, poll at the usual
    pace however long the line is: they are called next. The others share as many polls again.
    """

    min_ms: int
    max_ms: int
    per_s: float = math.inf

    @property
    def first(self) -> float:
        """How many fans may poll at the usual pace. A line with more of them waiting is long."""
        return self.per_s * self.max_ms / 1000

    def longest_ms(self, waiting: int, position: int, reach: float) -> int:
        """The longest time between polls at this position of a line with so many waiting fans."""
        is_first = position <= min(reach, self.first)
        return self.max_ms if is_first else math.ceil(max(self.max_ms, waiting * 1000 / self.per_s))


class LineSnapshot:
    """A line frame, the heads and shares that follow from it and its predecessor, and the wait estimate."""

    def __init__(
        self,
        frame: LineFrame,
        previous: "LineSnapshot | None" = None,
        *,
        estimate: WaitEstimate,
        received_s: float,
        polls: Polls,
    ) -> None:
        before = previous if previous is not None and previous.epoch == frame.epoch else None
        kept = before.heads if before else {}
        self.frame = frame
        self.epoch: int = frame.epoch
        self.heads: dict[int, int] = {
            **kept,
            **{lane: max(at.head_seq, kept.get(lane, 0)) for lane, at in frame.lanes.items()},
        }
        self.closed_lanes = frozenset(lane.lane for lane in frame.options.lanes if lane.opens_ms > frame.at_ms)
        weights = before.lane_weights if before else LaneWeights()
        self.lane_weights: LaneWeights = weights.after(frame, self.closed_lanes)
        self.before_sale = frame.state in BEFORE_SALE
        self.message = frame.message
        self.ranking = ranking_of(frame)
        self.received_s = received_s
        self.etag = f'W/"{frame.epoch}.{frame.version}"'.encode()
        self.estimate = estimate
        self._polls = polls
        self._waiting = sum(max(0, at.tail_seq - self.heads[lane]) for lane, at in frame.lanes.items())
        left = frame.calls_left
        self._reach = math.inf if left is None else left + MORE_CALLS  # places beyond it are hardly ever called
        self._sold_ms = (left or 0) * (estimate.per_place_s or 0) * 1000
        self.poll_min_ms = min(polls.min_ms, polls.max_ms, frame.liveness_window_s * 1000)
        self._is_long = self._waiting > polls.first
        self.line_read_after_ms = 2 * self.poll_min_ms
        if self._is_long:
            spread_ms = math.ceil(max(polls.max_ms, self._waiting * 1000 / (LINE_READS * polls.per_s)))
            self.line_read_after_ms = min(spread_ms, self._heartbeat_ms)
        self.near_places = self._near_places()
        self._body, self._body_at_ms = b"", 0

    def _near_places(self) -> int:
        """Places that the head may reach before a page has read the line twice more, and that the tickets reach: who is
        behind them has to hear nothing but that they are gone, which the line tells sooner than a poll.
        """
        head_per_s = self.frame.rate_per_s / max(LIVE_RATIO_MIN, self.frame.live_ratio)
        places = CALLS_AT_ONCE + math.ceil((2 * self.line_read_after_ms / 1000 + NEAR_S) * head_per_s)
        return int(min(places, self._reach))

    def position(self, lane: int, join_seq: int) -> int:
        """Places between this one and the head: an upper bound of the fans ahead. While ranks are unknown the head does
        not move, so this only says that nobody was called yet.
        """
        return max(0, self.ranking.rank(lane, join_seq) - self.heads.get(lane, 0))

    def may_be_called(self, position: int) -> bool:
        """Whether the place at this position may have been called since this frame was made: another gateway may know
        of it already.
        """
        return position <= CALLS_AT_ONCE + ADMISSION_DELAY_S * self.frame.rate_per_s

    def public_position(self, lane: int, join_seq: int, position: int) -> dict[str, int | None]:
        """The position in the public answer: null while ranks are unknown, then with the rank if it is another number
        than that of the join.
        """
        if self.frame.lottery is None:
            return {"position_in_queue": position}
        rank = None if self.ranking.pending else self.ranking.rank(lane, join_seq)
        return {"position_in_queue": None if rank is None else position, "rank": rank}

    def estimated_wait_s(self, position: int, lane: int = 0) -> int | None:
        """Estimated seconds until this position of its lane is called; before the sale it includes the time to the
        sale's start. `None` while unknown, and above a day.
        """
        return self.estimates(position, lane)["estimated_wait_time"]

    def estimates(self, position: int, lane: int = 0) -> dict[str, int | None]:
        """The wait as in the public answers, with its lower and upper bound unless something changes; above a day
        only the lower bound.
        """
        range_s = self._wait_s(position, lane)
        if range_s is None:
            return {"estimated_wait_time": None, "estimated_wait_low": None, "estimated_wait_high": None}
        before_s, wait_s = range_s
        unsure = math.exp(self.estimate.band + min(1.0, position**-0.5))  # few places ahead are a matter of chance, too
        low_s, all_s = before_s + wait_s / unsure, before_s + wait_s
        if all_s > ESTIMATE_MAX_S:
            low = math.floor(min(low_s, ESTIMATE_MAX_S))
            return {"estimated_wait_time": None, "estimated_wait_low": low, "estimated_wait_high": None}
        return {
            "estimated_wait_time": max(1, math.ceil(all_s - ROUNDING_S)), "estimated_wait_low": math.floor(low_s),
            "estimated_wait_high": math.ceil(before_s + wait_s * unsure + ADMISSION_DELAY_S),
        }  # fmt: skip

    def _wait_s(self, position: int, lane: int) -> tuple[float, float] | None:
        """Seconds until calls begin, and from then on; nothing while nobody can know."""
        seconds = self._seconds_per_place(lane)
        if seconds is None or position == 0:
            return None
        before_s = max(0.0, (self.estimate.starts_at_ms - now_ms()) / 1000) if self.before_sale else 0.0
        return before_s, position * seconds

    def _seconds_per_place(self, lane: int) -> float | None:
        per_place_s, share = self.estimate.per_place_s, self.lane_weights.shares.get(lane, 0)
        if (
            per_place_s is None
            or share == 0
            or self.ranking.pending
            or (self.before_sale and not self.estimate.starts_at_ms)
        ):
            return None
        return per_place_s / share

    def estimate_changed(self, since_s: int, lane: int = 0) -> dict[str, Any] | None:
        """Why the estimate grew or went, if that was after `since_s`, when the fan joined."""
        estimate, shrank_ms = self.estimate, self.lane_weights.shrank_ms.get(lane, 0)
        if estimate.per_place_s is not None and shrank_ms > max(estimate.at_ms, since_s * 1000):
            return {"reason": "other-lanes", "at": rfc3339(shrank_ms)}
        if estimate.reason is None or (estimate.per_place_s is not None and estimate.at_ms < since_s * 1000):
            return None
        return {"reason": estimate.reason, "at": rfc3339(estimate.at_ms)}

    def poll_after_ms(self, wait_s: int | None, join_seq: int, position: int = 0) -> int:
        """The next poll: once there may be news, spread by place over the time between polls, but no later than after
        three quarters of the wait, however short that is: without a stream a call is heard of by the next poll. (Of a
        line that is held back nobody knows so well.) Never after the liveness window, as a fan who is silent for longer
        might be passed over.
        """
        quiet_ms, window_ms = self._quiet_ms(position), self.frame.liveness_window_s * 1000
        longest_ms = self._polls.longest_ms(self._waiting, position, self._reach)
        limit_ms = window_ms if wait_s is None else min(window_ms, max(1, wait_s) * 750)
        after_ms = quiet_ms + _spread(longest_ms, join_seq, share=1 if quiet_ms else 5)
        turn_ms = _spread(limit_ms, join_seq, share=5)
        if self.frame.throttled is not None:
            turn_ms = max(self.poll_min_ms, turn_ms)
        return min(max(self.poll_min_ms, after_ms), turn_ms)

    def _quiet_ms(self, position: int) -> int:
        """How long there is no news where the tickets do not reach this position: until the sale has started and they
        are gone. Others may be called at any time: an operator may start the sale early.
        """
        if position <= self._reach:
            return 0
        starts_at_ms = self.estimate.starts_at_ms if self.before_sale else 0
        return math.ceil(max(0, starts_at_ms - now_ms()) + self._sold_ms)

    def heartbeat(self, join_seq: int, position: int) -> dict[str, int]:
        """When the place at this position must be heard of again, if its fan follows the line meanwhile. Nothing for a
        place that is near the head, or in a line that is not long: its fan polls the status.
        """
        if not self._is_long or position <= self.near_places:
            return {}
        return {"heartbeat_after_ms": _spread(self._heartbeat_ms, join_seq, share=5)}

    @property
    def _heartbeat_ms(self) -> int:
        return max(self.poll_min_ms, math.ceil(self.frame.liveness_window_s * 1000 * HEARTBEAT_WINDOWS))

    @property
    def waiting(self) -> int:
        """How many places wait in all lanes."""
        return self._waiting

    def body(self) -> bytes:
        """The public line, encoded once per frame and second."""
        at_ms = now_ms()
        if at_ms - self._body_at_ms > BODY_FRESH_MS:
            self._body, self._body_at_ms = orjson.dumps(self.public(at_ms), option=orjson.OPT_NON_STR_KEYS), at_ms
        return self._body

    def public(self, at_ms: int | None = None) -> dict[str, Any]:
        """The public line as an object."""
        frame, at_ms = self.frame, at_ms or now_ms()
        rules = {lane.lane: lane for lane in frame.options.lanes}
        lanes = {lane: self._lane(lane, at) | lane_view(rules.get(lane)) for lane, at in frame.lanes.items()}
        general = lanes.pop(0, None) or self._lane(0, LaneHead(head_seq=0, tail_seq=0))
        starts_ms = frame.sale_starts_at_ms
        public: dict[str, Any] = {
            "state": frame.state,
            "epoch": frame.epoch,
            **general,
            "rate_per_s": frame.rate_per_s,
            "live_ratio": frame.live_ratio,
            "message": frame.message,
            "sale_starts_at": rfc3339(starts_ms) if starts_ms is not None else None,
            "server_time": rfc3339(at_ms),
            "poll_after_ms": self.line_read_after_ms,
            "heartbeat_after_ms": self._heartbeat_ms if self._is_long else None,
            "near_places": self.near_places,
            "estimate_band": self.estimate.band,
        }
        if frame.throttled is not None:
            public["throttled"] = frame.throttled.model_dump()
        if frame.lottery is not None:
            public["lottery"] = frame.lottery.stage
        return {**public, "lanes": lanes} if lanes else public

    def _lane(self, lane: int, at: LaneHead) -> dict[str, Any]:
        head_seq = self.heads.get(lane, 0)
        return {
            "head_seq": head_seq,
            "tail_seq": max(at.tail_seq, head_seq),
            "seconds_per_place": self._seconds_per_place(lane),
            "estimate_changed": self.estimate_changed(0, lane),
        }


def _spread(ms: int, join_seq: int, *, share: int) -> int:
    """Up to one `share`th less, by place, so that fans do not poll at the same time."""
    return ms - ms * (join_seq % JITTER_STEPS) // (JITTER_STEPS * share)


def lane_view(lane: Lane | None) -> dict[str, Any]:
    """The public part of a lane's rules."""
    if lane is None:
        return {}
    opens = {"opens_at": rfc3339(lane.opens_ms)} if lane.opens_ms else {}
    return opens if lane.lane == 0 else {"name": lane.name, "code_required": lane.code_required, **opens}
