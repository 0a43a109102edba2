"""The last stock frame of each event, so that no fan is called for tickets that are gone.

A frame only limits the calls; before a room shows `sold_out`, inventory's database is asked.
"""

import asyncio

from cachetools import TTLCache
from pydantic import ValidationError

from services.queue.line.redis_line import Stock
from shared.concurrency.background import wake
from shared.contracts.frames import FRAME_STALE_S, STOCK_CHANNELS, StockFrame
from shared.contracts.inventory import InventoryClient
from shared.errors.problems import Problem
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.runtime.logging import get_logger

log = get_logger("onsale.queue")
DB_LEVEL_TTL_S = 1.0
EVENTS_MAX = 10_000


class StockCache:
    """The last stock frame of each event, and what inventory's database says of those that look sold out."""

    def __init__(self, redis: Redis, inventory: InventoryClient) -> None:
        self._redis, self._inventory = redis, inventory
        self._frames: dict[str, tuple[float, StockFrame]] = {}
        self._levels_by_db: TTLCache[str, str] = TTLCache(EVENTS_MAX, DB_LEVEL_TTL_S)

    async def listen(self) -> None:
        """Receives frames, without end."""
        await listen(self._redis, STOCK_CHANNELS, self.on_frame)

    def on_frame(self, raw: bytes) -> None:
        """Stores a frame unless a later one is stored."""
        try:
            frame = StockFrame.model_validate_json(raw)
        except ValidationError:
            log.warning("stock.frame_unreadable", size=len(raw))
            return
        _, last = self._frames.get(frame.event_id, (0.0, None))
        if last is None or (last.epoch, last.version) < (frame.epoch, frame.version):
            self._frames[frame.event_id] = (_now_s(), frame)
            if last is None or _level(last) != _level(frame):
                wake("queue")

    def fresh(self, event_id: str) -> StockFrame | None:
        """The last frame, if it is ready and not stale."""
        received_s, frame = self._frames.get(event_id, (0.0, None))
        return None if frame is None or not frame.ready or _now_s() - received_s > FRAME_STALE_S else frame

    async def get(self, event_id: str) -> Stock:
        """The stock for a tick; unknown while there is no fresh, ready frame."""
        frame = self.fresh(event_id)
        if frame is None:
            return Stock()
        level = await self._level(frame)
        return Stock(
            available=frame.available, holders_holding=frame.holders_holding, level=level,
            holds_begun=frame.holds_begun, holds_released=frame.holds_let_go, version=frame.version,
        )  # fmt: skip

    async def _level(self, frame: StockFrame) -> str:
        if frame.available > 0:
            return "plenty"
        return "last_chance" if frame.held > 0 else await self._level_by_db(frame.event_id)

    async def _level_by_db(self, event_id: str) -> str:
        """`sold_out` if inventory's database has nothing left either, kept for a second; without an answer
        `last_chance`.
        """
        level = self._levels_by_db.get(event_id)
        if level is not None:
            return level
        try:
            frame = await self._inventory.stock(event_id)
            level = "sold_out" if frame.available == 0 and frame.held == 0 else "last_chance"
        except Problem as failed:
            log.info("stock.level_unknown", event_id=event_id, error=failed.slug)
            level = "last_chance"
        self._levels_by_db[event_id] = level
        return level


def _level(frame: StockFrame) -> tuple[int, int, bool]:
    return frame.available, frame.held, frame.ready


def _now_s() -> float:
    return asyncio.get_running_loop().time()
