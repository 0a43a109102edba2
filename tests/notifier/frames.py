"""Frames of one event and one order, as queue, inventory and orders publish them."""

from typing import Any

from shared.contracts.frames import (
    LaneHead,
    LineFrame,
    OrderFrame,
    SectionCounts,
    StockFrame,
    line_channel,
    stock_channel,
)
from shared.runtime.clock import now_ms

EVENT = "arena"
REFERENCE = "ORDER12345"


def line_frame(version: int, head_seq: int = 0, *, epoch: int = 1, **more: Any) -> LineFrame:
    lanes = more.pop("lanes", {0: LaneHead(head_seq=head_seq, tail_seq=1000)})
    return LineFrame(event_id=EVENT, epoch=epoch, version=version, ready=more.pop("ready", True), at_ms=now_ms(),
                     state="open", lanes=lanes, rate_per_s=50, **more)  # fmt: skip


def stock_frame(version: int, **available: int) -> StockFrame:
    sections = [
        SectionCounts(section_id=name, available=count, held=1, sold=2, at_ms=now_ms())
        for name, count in available.items()
    ]
    return StockFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), sections=sections)


def order_frame(version: int, status: str, reference: str = REFERENCE, *, holder: str = "holder-0-1") -> OrderFrame:
    return OrderFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), reference=reference,
                      holder=holder, status=status, body={"reference": reference, "status": status})  # fmt: skip


def channel_of(frame: LineFrame | StockFrame) -> str:
    return (line_channel if isinstance(frame, LineFrame) else stock_channel)(frame.event_id)
