"""Stock changes by operators, each one transaction with one audit log entry; then Redis and the event cache follow."""

from collections.abc import Awaitable, Callable
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.push import push_stock
from services.inventory.store.change import StockChange, stock_change
from shared.contracts.admin.inventory import ChangeReason, StockChanged
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")


class StockEditor:
    """Runs operators' changes of stock."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue

    async def apply(
        self,
        event_id: str,
        action: str,
        why: ChangeReason,
        edit: Callable[[StockChange], Awaitable[object]],
        *,
        by: str,
    ) -> StockChanged:
        """Raises `UnknownEvent`, `VersionMismatch` or what `edit` raises, and then nothing was changed."""
        change_of = partial(stock_change, self._db, event_id, reason=why.reason, version=why.version)
        async with change_of(actor=by, action=action) as change:
            await edit(change)
        if change.is_any:
            log.info("stock.changed", event_id=event_id, action=action, by=by, version=change.version)
            await push_stock(self._db, self._redis_stock, event_id, change.dirty)
            await self._catalogue.refresh()
        seats = len(change.dirty.seats)
        return StockChanged(event_id=event_id, changed=change.is_any, version=change.version, seats=seats)
