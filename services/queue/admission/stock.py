"""What inventory shows of its stock, so that nobody is called for what is gone.

A frame paces; it never ends a sale: before a room says `sold_out`, inventory's ledger is asked.
"""

import asyncio
import logging

from pydantic import ValidationError

from services.queue.line.replies import Stock
from shared.contracts.frames import FRAME_STALE_S, STOCK_CHANNELS, StockFrame
from shared.contracts.inventory import InventoryClient
from shared.redis.client import Redis
from shared.redis.pubsub import listen
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.queue")
ASK_AGAIN_S = 1.0


class StockCache:
    """The last stock frame of each event, and the ledger's word on those that look sold out."""

    def __init__(self, redis: Redis, inventory: InventoryClient) -> None:
        self._redis, self._inventory = redis, inventory
        self._frames: dict[str, tuple[float, StockFrame]] = {}
        self._asked: dict[str, tuple[float, str]] = {}

    async def listen(self) -> None:
        """Reads frames for ever."""
        await listen(self._redis, STOCK_CHANNELS, self.take)

    def take(self, raw: bytes) -> None:
        """Keeps a frame unless a later one is there."""
        try:
            frame = StockFrame.model_validate_json(raw)
        except ValidationError:
            log.warning("stock.frame_unreadable", extra=data(size=len(raw)))
            return
        _, last = self._frames.get(frame.event_id, (0.0, None))
        if last is None or (last.epoch, last.version) < (frame.epoch, frame.version):
            self._frames[frame.event_id] = (_now_s(), frame)

    async def of(self, event_id: str) -> Stock:
        """What the tick is told: nothing while there is no fresh, ready frame."""
        taken_s, frame = self._frames.get(event_id, (0.0, None))
        if frame is None or not frame.ready or _now_s() - taken_s > FRAME_STALE_S:
            return Stock()
        word = await self._word(frame)
        totals = frame.holds_begun, frame.holds_let_go
        return Stock(frame.available, frame.holders_holding, word, *totals, frame.version)

    async def _word(self, frame: StockFrame) -> str:
        if frame.available > 0:
            return "plenty"
        return "last_chance" if frame.held > 0 else await self._ask(frame.event_id)

    async def _ask(self, event_id: str) -> str:
        """Whether the ledger, too, has nothing left; remembered for a second, and its silence is `last_chance`."""
        asked_s, answer = self._asked.get(event_id, (0.0, ""))
        if answer and _now_s() - asked_s < ASK_AGAIN_S:
            return answer
        try:
            frame = await self._inventory.stock(event_id)
            answer = "sold_out" if frame.available == 0 and frame.held == 0 else "last_chance"
        except Problem as silent:
            log.info("stock.not_told", extra=data(event_id=event_id, error=silent.slug))
            answer = "last_chance"
        self._asked[event_id] = (_now_s(), answer)
        return answer


def _now_s() -> float:
    return asyncio.get_running_loop().time()
