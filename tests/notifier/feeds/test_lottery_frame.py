"""A stream has the stage of a lottery only, and nothing of the draw."""

from services.notifier.broadcast.frames import line_body
from shared.contracts.frames import LaneDraw, LaneHead, LineFrame, LotteryFrame


def test_a_stream_has_the_stage_and_nothing_else():
    frame = LineFrame(event_id="show", epoch=1, version=1, ready=True, at_ms=0, state="prequeue", rate_per_s=1,
                      lanes={0: LaneHead(head_seq=0, tail_seq=3)})  # fmt: skip
    assert "lottery" not in line_body(frame, degraded=False)
    drawn = LotteryFrame(stage="drawn", lanes={0: LaneDraw(entrants_n=3, key="ab" * 32)})
    fact = line_body(frame.model_copy(update={"lottery": drawn}), degraded=False)
    assert fact["lottery"] == "drawn"
    assert "abab" not in str(fact)
