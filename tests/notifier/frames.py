"""Frames of one event and one order, as queue, inventory and orders publish them."""

from base64 import b64encode
from typing import Any

from shared.contracts.frames import (
    LaneHead,
    LineFrame,
    OrderFrame,
    SeatsFrame,
    SectionCounts,
    StockFrame,
    line_channel,
    seats_channel,
    stock_channel,
)
from shared.rules.seat_codes import pack
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


def seats_frame(version: int, codes: bytes, *, epoch: int = 1, sections: tuple[str, ...] = ("A", "B")) -> SeatsFrame:
    """Sections of the same number of seats; version 0 is not ready."""
    counts = [(name, len(codes) // len(sections)) for name in sections]
    return SeatsFrame(event_id=EVENT, epoch=epoch, version=version, ready=version > 0, at_ms=now_ms(), sections=counts,
                      seats=b64encode(pack(codes)).decode())  # fmt: skip


def order_frame(version: int, status: str, reference: str = REFERENCE, *, holder: str = "holder-0-1") -> OrderFrame:
    return OrderFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), reference=reference,
                      holder=holder, status=status, body={"reference": reference, "status": status})  # fmt: skip


CHANNELS = {LineFrame: line_channel, StockFrame: stock_channel, SeatsFrame: seats_channel}


def channel_of(frame: LineFrame | StockFrame | SeatsFrame) -> str:
    return CHANNELS[type(frame)](frame.event_id)
