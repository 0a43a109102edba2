"""What part of all calls each lane gets: its weight among those that have somebody waiting, or had a moment ago.

A share that shrinks makes estimates grow, so when it last did is remembered, to be told as the reason.
"""

from dataclasses import dataclass, field

from shared.contracts.frames import LineFrame

REMEMBERED_MS = 30_000


@dataclass(frozen=True, slots=True)
class Shares:
    """Per lane: its share (absent before the lane's start), when somebody last waited there, when the share shrank."""

    of: dict[int, float] = field(default_factory=dict)
    waited_ms: dict[int, int] = field(default_factory=dict)
    shrank_ms: dict[int, int] = field(default_factory=dict)

    def after(self, frame: LineFrame, closed_lanes: frozenset[int]) -> "Shares":
        """The shares after this frame of the same line."""
        now_ms = frame.at_ms
        waits = {lane: now_ms for lane, at in frame.lanes.items() if at.tail_seq > at.head_seq}
        waited = {lane: ms for lane, ms in {**self.waited_ms, **waits}.items() if now_ms - ms <= REMEMBERED_MS}
        weights = {lane.lane: lane.weight for lane in frame.options.lanes if lane.lane not in closed_lanes}
        wanting = {lane: weights[lane] for lane in waited if lane in weights}
        of = {lane: weight / sum({**wanting, lane: weight}.values()) for lane, weight in weights.items()}
        shrank = {lane: now_ms for lane, share in of.items() if share < self.of.get(lane, 0.0)}
        return Shares(of, waited, {**self.shrank_ms, **shrank})
