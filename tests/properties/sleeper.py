"""A process that stops in the middle of taking a hold: after Redis, or after the database. It may wake up, or die."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.redis_stock.client import HoldDenied, HoldGranted, RedisStock
from services.inventory.reservations.reserve import ReservationBatcher, ReservationRequest, ReserveResult


class PausingRedisStock(RedisStock):
    """Stops once, where it was told to."""

    def __init__(self, redis_stock: RedisStock, stop: str) -> None:
        super().__init__(redis_stock.redis, clock_offset_ms=redis_stock.clock_offset_ms)
        self.stop, self.asleep, self.awake = stop, asyncio.Event(), asyncio.Event()
        self.gated: HoldGranted | None = None

    async def hold(self, event_id: str, asks: Sequence[dict[str, Any]]) -> list[HoldGranted | HoldDenied]:
        words = await super().hold(event_id, asks)
        if self.stop == "after Redis" and isinstance(words[0], HoldGranted) and words[0].outcome == "held":
            self.gated = words[0]
            await self._sleep()
        return words

    async def confirm_written(self, event_id: str, release_at_ms: Mapping[str, int]) -> None:
        if self.stop == "after the database":
            await self._sleep()
        await super().confirm_written(event_id, release_at_ms)

    async def _sleep(self) -> None:
        self.asleep.set()
        await self.awake.wait()


class PausedProcess:
    """One inventory process with one request in it."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, ask: ReservationRequest, stop: str) -> None:
        self.ask, self.redis_stock = ask, PausingRedisStock(redis_stock, stop)
        self._reserver = ReservationBatcher(db, self.redis_stock, ask.layout.event_id, batch_max=8, waiting_max=8)
        self.answer: asyncio.Task[ReserveResult] = asyncio.create_task(self._reserver.reserve(ask))

    async def settles(self) -> bool:
        """Returns when it has fallen asleep (true) or got through."""
        asleep = asyncio.create_task(self.redis_stock.asleep.wait())
        wanted = {asleep} if self.redis_stock.stop == "after the database" else {asleep, self.answer}
        await asyncio.wait({asleep, self.answer}, return_when=asyncio.FIRST_COMPLETED)
        if self.answer.done() and not self.answer.exception():
            await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED, timeout=1)
        asleep.cancel()
        return self.redis_stock.asleep.is_set()

    async def wake(self) -> None:
        self.redis_stock.awake.set()
        await asyncio.gather(self.answer, return_exceptions=True)
        await self._reserver.close()

    async def die(self) -> None:
        for task in (*self._reserver._commit._running, *self._reserver._confirming):
            task.cancel()
        await asyncio.gather(self.answer, *self._reserver._confirming, return_exceptions=True)
