"""An inventory process that pauses in the middle of a hold, after Redis or after the database; it may resume or die."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.redis_stock.client import Change, HoldDenied, HoldGranted, RedisStock
from services.inventory.reservations.reserve import ReservationBatcher, ReservationRequest, ReserveResult


class PausingRedisStock(RedisStock):
    """Pauses at one point: "after Redis" or "after the database"."""

    def __init__(self, redis_stock: RedisStock, point: str) -> None:
        super().__init__(redis_stock.redis, clock_offset_ms=redis_stock.clock_offset_ms)
        self.point, self.paused, self.resumed = point, asyncio.Event(), asyncio.Event()
        self.granted: HoldGranted | None = None

    async def hold(self, event_id: str, requests: Sequence[dict[str, Any]]) -> list[HoldGranted | HoldDenied]:
        outcomes = await super().hold(event_id, requests)
        if self.point == "after Redis" and isinstance(outcomes[0], HoldGranted) and outcomes[0].outcome == "held":
            self.granted = outcomes[0]
            await self._pause()
        return outcomes

    async def follow(self, event_id: str, reservations: Sequence[Change] = (), **named: Any) -> str:
        if self.point == "after the database" and any(r["v"] == 1 and r["now"] == "h" for r in reservations):
            await self._pause()
        return await super().follow(event_id, reservations, **named)

    async def _pause(self) -> None:
        self.paused.set()
        await self.resumed.wait()


class PausedProcess:
    """An inventory process that handles one request."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, request: ReservationRequest, point: str) -> None:
        self.request, self.redis_stock = request, PausingRedisStock(redis_stock, point)
        self._batcher = ReservationBatcher(db, self.redis_stock, request.layout.event_id, batch_max=8, waiting_max=8)
        self.answer: asyncio.Task[ReserveResult] = asyncio.create_task(self._batcher.reserve(request))

    async def pauses(self) -> bool:
        """Waits until the process has paused (true) or finished (false)."""
        paused = asyncio.create_task(self.redis_stock.paused.wait())
        expected = {paused} if self.redis_stock.point == "after the database" else {paused, self.answer}
        await asyncio.wait({paused, self.answer}, return_when=asyncio.FIRST_COMPLETED)
        if self.answer.done() and not self.answer.exception():
            await asyncio.wait(expected, return_when=asyncio.FIRST_COMPLETED, timeout=1)
        paused.cancel()
        return self.redis_stock.paused.is_set()

    async def resume(self) -> None:
        self.redis_stock.resumed.set()
        await asyncio.gather(self.answer, return_exceptions=True)
        await self._batcher.close()

    async def die(self) -> None:
        for task in (*self._batcher._commit._running, *self._batcher._confirming):
            task.cancel()
        await asyncio.gather(self.answer, *self._batcher._confirming, return_exceptions=True)
