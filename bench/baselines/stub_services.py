"""A stub of queue and inventory, as far as a notifier calls them; its state never changes."""

from fastapi import FastAPI

from bench.baselines.service import service
from shared.contracts.frames import LaneHead, LineFrame, SectionCounts, StockFrame
from shared.contracts.queue import HeartbeatAnswer
from shared.runtime.clock import now_ms

EVENT = "arena"


def create_app() -> FastAPI:
    """One event with a line and two sections."""
    app = service()

    @app.post("/internal/rooms/frame")
    async def frame() -> LineFrame:
        return line_frame(1, "")

    @app.post("/internal/stock")
    async def stock() -> StockFrame:
        return stock_frame()

    @app.post("/internal/heartbeats")
    async def heartbeats() -> HeartbeatAnswer:
        return HeartbeatAnswer(report_again_s=60)

    return app


def stock_frame() -> StockFrame:
    """Two sections."""
    sections = [
        SectionCounts(section_id=name, available=1000, held=10, sold=5, at_ms=now_ms()) for name in ("A", "GA1")
    ]
    return StockFrame(event_id=EVENT, epoch=1, version=1, ready=True, at_ms=now_ms(), sections=sections)


def line_frame(version: int, message: str) -> LineFrame:
    """A frame of the line with a message."""
    lanes = {0: LaneHead(head_seq=version, tail_seq=1_000_000)}
    return LineFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), state="open", lanes=lanes,
                     rate_per_s=50, message=message)  # fmt: skip
