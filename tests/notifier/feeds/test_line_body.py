"""The body of a line frame in a stream: throttling and lottery stage, while they apply, and nothing secret."""

from services.notifier.broadcast.frames import line_body
from shared.contracts.frames import LaneDraw, LotteryFrame, Throttled
from tests.notifier.frames import line_frame


def test_the_stream_reports_throttling_only_while_the_line_is_throttled() -> None:
    frame = line_frame(1, 1)
    assert "throttled" not in line_body(frame, degraded=False)
    throttled = Throttled(factor=0.5, reason="orders-slow")
    body = line_body(frame.model_copy(update={"throttled": throttled}), degraded=False)
    assert body["throttled"] == {"factor": 0.5, "reason": "orders-slow"}


def test_the_stream_has_the_stage_of_a_lottery_and_not_its_key() -> None:
    frame = line_frame(1)
    assert "lottery" not in line_body(frame, degraded=False)
    drawn = LotteryFrame(stage="drawn", lanes={0: LaneDraw(entrants_n=3, key="ab" * 32)})
    body = line_body(frame.model_copy(update={"lottery": drawn}), degraded=False)
    assert body["lottery"] == "drawn"
    assert "abab" not in str(body)
