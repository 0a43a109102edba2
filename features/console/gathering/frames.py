"""The last frames of every line and stock, and of every process, as Pub/Sub delivers them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from features.console.schemas import Process, ProcessState
from shared.concurrency.background import Loops
from shared.contracts.frames import (
    FRAME_STALE_S,
    LINE_CHANNELS,
    LOAD_CHANNELS,
    STOCK_CHANNELS,
    Frame,
    LineFrame,
    LoadFrame,
    StockFrame,
)
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
FrameT = TypeVar("FrameT", bound=Frame)
ModelT = TypeVar("ModelT", bound=BaseModel)
EVENTS_MAX, PROCESSES_MAX = 10_000, 1_000
SILENT_MS, FORGOTTEN_MS = 3_000, 60_000
BUSY_P95_MS = 1_000.0
MEASURED = ("inventory", "orders")  # the others do not measure their writes


class FrameCache:
    """Frames with the time at which they came; a stale one is none. `on_change` is told of each line that has news."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._lines: dict[str, tuple[int, LineFrame]] = {}
        self._stocks: dict[str, tuple[int, StockFrame]] = {}
        self._loads: dict[str, tuple[int, LoadFrame]] = {}
        self.on_change: Callable[[str], object] = lambda event_id: None

    def start(self, loops: Loops) -> None:
        """Receives frames from now on."""
        loops.keep(lambda: listen(self._redis, LINE_CHANNELS, self.on_line), name="console.lines")
        loops.keep(lambda: listen(self._redis, STOCK_CHANNELS, self.on_stock), name="console.stocks")
        loops.keep(lambda: listen(self._redis, LOAD_CHANNELS, self.on_load), name="console.loads")

    def on_line(self, raw: bytes) -> None:
        if stored := _store(self._lines, LineFrame, raw):
            self.on_change(stored.event_id)

    def on_stock(self, raw: bytes) -> None:
        _store(self._stocks, StockFrame, raw)

    def on_load(self, raw: bytes) -> None:
        frame = _parsed(LoadFrame, raw)
        if frame and (frame.process in self._loads or len(self._loads) < PROCESSES_MAX):
            self._loads[frame.process] = (now_ms(), frame)

    def line(self, event_id: str) -> LineFrame | None:
        return _fresh(self._lines, event_id)

    def stock(self, event_id: str) -> StockFrame | None:
        return _fresh(self._stocks, event_id)

    def lines(self) -> Iterator[LineFrame]:
        """The fresh frame of every line."""
        return (frame for event_id in list(self._lines) if (frame := self.line(event_id)))

    def notifiers(self) -> tuple[list[LoadFrame], int | None]:
        """The last frame of each notifier that is not silent, and until when one of them was alive."""
        alive = [(_alive_ms(*one), one[1]) for one in self._loads.values() if one[1].service == "notifier"]
        up = [frame for at_ms, frame in alive if now_ms() - at_ms < SILENT_MS]
        return up, max((at_ms for at_ms, _ in alive), default=None)

    def processes(self) -> list[Process]:
        """Every process of the last minute, by service and name."""
        at_ms = now_ms()
        self._loads = {name: one for name, one in self._loads.items() if at_ms - one[0] < FORGOTTEN_MS}
        found = [_process(frame, came_ms, at_ms) for came_ms, frame in self._loads.values()]
        return sorted(found, key=lambda process: (process.service, process.process))


def _parsed(kind: type[ModelT], raw: bytes) -> ModelT | None:
    try:
        return kind.model_validate_json(raw)
    except ValidationError:
        log.warning("console.frame_unreadable", size=len(raw))
        return None


def _store(frames: dict[str, tuple[int, FrameT]], kind: type[FrameT], raw: bytes) -> FrameT | None:
    """Keeps the frame unless a later one is there; what was kept."""
    frame = _parsed(kind, raw)
    if frame is None:
        return None
    _, last = frames.get(frame.event_id, (0, None))
    if last is None and len(frames) >= EVENTS_MAX:
        return None
    if last is not None and (last.epoch, last.version) > (frame.epoch, frame.version):
        return None
    frames[frame.event_id] = (now_ms(), frame)
    return frame


def _fresh(frames: dict[str, tuple[int, FrameT]], event_id: str) -> FrameT | None:
    came_ms, frame = frames.get(event_id, (0, None))
    return frame if now_ms() - came_ms < FRAME_STALE_S * 1000 else None


def _alive_ms(came_ms: int, frame: LoadFrame) -> int:
    """The last time at which the process was known to be alive; while it rests, as it said, that is now."""
    return min(now_ms(), came_ms + frame.rests_ms)


def _process(frame: LoadFrame, came_ms: int, at_ms: int) -> Process:
    busy = frame.refused > 0 or frame.p95_ms >= BUSY_P95_MS
    state: ProcessState = "silent" if at_ms - _alive_ms(came_ms, frame) >= SILENT_MS else "busy" if busy else "up"
    measured = frame.service in MEASURED
    return Process(
        service=frame.service, process=frame.process, state=state, heard_ms=came_ms,
        writes_per_s=frame.done_per_s if measured else None, p95_ms=frame.p95_ms if measured else None,
    )  # fmt: skip
