"""The body of a line frame in a stream."""

from services.notifier.broadcast.frames import line_body
from shared.contracts.frames import LaneHead, LineFrame, Throttled


def test_the_stream_says_throttled_only_while_the_line_is() -> None:
    lanes = {0: LaneHead(head_seq=1, tail_seq=9)}
    frame = LineFrame(
        event_id="show", epoch=1, version=1, ready=True, at_ms=1, state="open", lanes=lanes, rate_per_s=5.0
    )
    assert "throttled" not in line_body(frame, degraded=False)
    throttled = Throttled(factor=0.5, reason="orders-slow")
    told = line_body(frame.model_copy(update={"throttled": throttled}), degraded=False)
    assert told["throttled"] == {"factor": 0.5, "reason": "orders-slow"}
