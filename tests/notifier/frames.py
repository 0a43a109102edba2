"""Frames of one event and one order, as queue, inventory and orders publish them. Their numbers begin at `FIRST`: later
than any version that a service gives by its clock.
"""

from base64 import b64encode
from typing import Any

from features.hall.seat_codes import SeatsFrame, pack, seats_channel
from shared.contracts.event_file import EventFile
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
FIRST = 5_000_000_000_000  # ms; versions have 13 digits
STOCK_EPOCH = 2  # inventory's, which is not that of the waiting room, once it has filled Redis for the first time
FILE = EventFile.model_validate({
    "event_id": EVENT, "name": "A show", "venue": "A hall", "currency": "EUR", "starts_at": "2027-03-05T19:30:00Z",
    "room": {"rate_per_s": 50, "burst": 10},
    "sections": [
        *({"section_id": name, "name": name, "kind": "seated", "rows": 1, "seats_per_row": 4, "price_minor": 5000}
          for name in ("A", "B")),
        {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 300, "price_minor": 3000},
    ],
})  # fmt: skip


def line_frame(version: int, head_seq: int = 0, *, epoch: int = 1, **more: Any) -> LineFrame:
    lanes = more.pop("lanes", {0: LaneHead(head_seq=head_seq, tail_seq=1000)})
    return LineFrame(event_id=EVENT, epoch=epoch, version=FIRST + version, ready=more.pop("ready", True),
                     at_ms=now_ms(), state="open", lanes=lanes, rate_per_s=50, **more)  # fmt: skip


def stock_frame(version: int, reserved: int = 0, **available: int) -> StockFrame:
    sections = [
        SectionCounts(section_id=name, available=count, held=1, sold=2, at_ms=now_ms(), reserved=reserved)
        for name, count in available.items()
    ]
    return StockFrame(event_id=EVENT, epoch=STOCK_EPOCH, version=FIRST + version, ready=True, at_ms=now_ms(),
                      sections=sections)  # fmt: skip


def seats_frame(
    version: int, codes: bytes, *, epoch: int = STOCK_EPOCH, sections: tuple[str, ...] = ("A", "B")
) -> SeatsFrame:
    """Sections of the same number of seats."""
    counts = [(name, len(codes) // len(sections)) for name in sections]
    return SeatsFrame(event_id=EVENT, epoch=epoch, version=FIRST + version, ready=True, at_ms=now_ms(), sections=counts,
                      seats=b64encode(pack(codes)).decode())  # fmt: skip


def order_frame(version: int, status: str, reference: str = REFERENCE, *, holder: str = "holder-0-1") -> OrderFrame:
    return OrderFrame(event_id=EVENT, epoch=0, version=FIRST + version, ready=True, at_ms=now_ms(),
                      reference=reference, holder=holder, status=status,
                      body={"reference": reference, "status": status})  # fmt: skip


def frame_id(line: int, stock: int) -> str:
    """The id of the event's state after these frames."""
    return f"1.{(FIRST + line) * 10**13 + FIRST + stock}"


CHANNELS = {LineFrame: line_channel, StockFrame: stock_channel, SeatsFrame: seats_channel}


def channel_of(frame: LineFrame | StockFrame | SeatsFrame) -> str:
    return CHANNELS[type(frame)](frame.event_id)
