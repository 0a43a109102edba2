"""Frames of a line, and the snapshots that the gateway makes of them."""

import itertools
import time
from typing import Any

from services.gateway.waiting_line.snapshot import LineSnapshot, Polls
from services.gateway.waiting_line.wait_estimate import WaitEstimate
from shared.contracts.frames import LaneHead, LineFrame
from shared.runtime.clock import now_ms

START_MS = 1_800_000_000_000
_versions = itertools.count(START_MS)


def line_frame(at_ms: int = START_MS, *, head: int = 0, tail: int = 10_000, **fields: Any) -> LineFrame:
    return LineFrame.model_validate({
        "event_id": "show", "epoch": 1, "version": at_ms, "ready": True, "at_ms": at_ms, "state": "open",
        "lanes": {0: LaneHead(head_seq=head, tail_seq=tail)}, "rate_per_s": 10.0, **fields,
    })  # fmt: skip


def new_frame(**fields: Any) -> LineFrame:
    """The frame of a line as it is now, to publish: later than each before it, and than those of the real queue."""
    return line_frame(now_ms(), **{"version": next(_versions), **fields})


def lanes(**heads: tuple[int, int]) -> dict[int, LaneHead]:
    """Heads and tails by lane: `lanes(_0=(0, 50))`."""
    return {int(lane[1:]): LaneHead(head_seq=head, tail_seq=tail) for lane, (head, tail) in heads.items()}


def snapshot(
    frame: LineFrame, previous: LineSnapshot | None = None, *, estimate: WaitEstimate | None = None
) -> LineSnapshot:
    return LineSnapshot(
        frame,
        previous,
        estimate=estimate or WaitEstimate(per_place_s=0.1),
        received_s=time.monotonic(),
        polls=Polls(1000, 10_000),
    )
