"""Stock changes by operators: block, unblock, resize, allot, open.

Each is one transaction with one audit log entry. Then Redis and the event cache follow; sales go on meanwhile.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.event_cache import EventCache
from services.inventory.catalogue.resize import resize
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.push import push_stock
from services.inventory.stock import blocking
from services.inventory.stock.allotments import open_allotment, upsert
from services.inventory.stock.change import StockChange, stock_change
from shared.contracts.admin.inventory import AllotmentChange, CapacityChange, ChangeReason, PlacesChange, StockChanged
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")


class StockEditor:
    """Every method raises `UnknownEvent`, `VersionMismatch` or `StockConflict`, and then nothing was changed."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue

    async def block(self, event_id: str, places: PlacesChange, *, actor: str) -> StockChanged:
        async with self._change(event_id, places, actor=actor, action="block") as change:
            await blocking.block(change, await change.select(places))
        return change.answer()

    async def unblock(self, event_id: str, places: PlacesChange, *, actor: str) -> StockChanged:
        async with self._change(event_id, places, actor=actor, action="unblock") as change:
            await blocking.unblock(change, await change.select(places))
        return change.answer()

    async def resize(self, event_id: str, section_id: str, wanted: CapacityChange, *, actor: str) -> StockChanged:
        async with self._change(event_id, wanted, actor=actor, action="resize") as change:
            await resize(change, section_id, wanted.capacity)
        return change.answer()

    async def put_allotment(
        self, event_id: str, allotment_id: str, wanted: AllotmentChange, *, actor: str
    ) -> StockChanged:
        async with self._change(event_id, wanted, actor=actor, action="allot") as change:
            await upsert(change, allotment_id, wanted)
        return change.answer()

    async def open_allotment(
        self, event_id: str, allotment_id: str, reason: ChangeReason, *, actor: str
    ) -> StockChanged:
        async with self._change(event_id, reason, actor=actor, action="open") as change:
            await open_allotment(change, allotment_id)
        return change.answer()

    @asynccontextmanager
    async def _change(
        self, event_id: str, why: ChangeReason, *, actor: str, action: str
    ) -> AsyncIterator[StockChange]:  # fmt: skip
        async with stock_change(
            self._db, event_id, actor=actor, action=action, reason=why.reason, version=why.version
        ) as change:
            yield change
        if change.is_any:
            log.info("stock.changed", extra=data(event_id=event_id, action=action, by=actor, version=change.version))
            await push_stock(self._db, self._redis_stock, event_id, change.dirty)
            await self._catalogue.refresh()
