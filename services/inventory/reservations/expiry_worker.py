"""Holds end on time: due ones by the gate's deadlines within a second, the rest by a scan of the ledger.

What is being paid is never reaped: past its deadline orders is asked, and only `dead` or `absent` releases it.
"""

import logging

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import EventCache
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.expiry import expire_overdue, resolve_due
from services.inventory.reservations.payment import Payments
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.postgres.engine import DB_AWAY
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.inventory")
DUE_MAX = 500
ASK_MAX = 100
SCAN_BEHIND_MS = 1000  # the deadlines come first; the scan is the backstop
PAYING_TOO_LONG = text(
    "SELECT r.reservation_id, r.order_reference FROM inventory.reservation r "
    "WHERE r.event_id = :event_id AND r.status = 'paying' AND r.reserved_until_ms < CAST(:now_ms AS bigint) "
    "- 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id) "
    "ORDER BY r.reserved_until_ms LIMIT :count_max"
)


class ExpiryWorker:
    """Three turns, each called by a loop."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, payments: Payments, orders: OrdersClient
    ) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._payments, self._orders = payments, orders

    async def sweep(self) -> None:
        """By the gate's deadlines."""
        for event_id in await self._redis_stock.with_due(layout.event_id for layout in self._catalogue.layouts()):
            try:
                more = True
                while more:
                    now_ms, due = await self._redis_stock.due(event_id, count_max=DUE_MAX)
                    ended = due and await resolve_due(self._db, self._redis_stock, event_id, due, now_ms=now_ms)
                    more = bool(ended) and len(due) == DUE_MAX
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.warning("sweep.skipped", extra=data(event_id=event_id, error=type(away).__name__))

    async def scan(self) -> None:
        """By the ledger, whatever the gates remember."""
        for layout in self._catalogue.layouts():
            try:
                now_ms, _ = await self._redis_stock.due(layout.event_id, count_max=1)
            except REDIS_AWAY:
                continue
            if now_ms:
                while (
                    await expire_overdue(self._db, self._redis_stock, layout.event_id, now_ms=now_ms - SCAN_BEHIND_MS)
                    == DUE_MAX
                ):
                    pass
                await self.check_paying(layout.event_id, now_ms=now_ms)

    async def check_paying(self, event_id: str, *, now_ms: int) -> None:
        """Holds in payment past their deadline: what has become of their orders?"""
        async with self._db.connect() as connection:
            values = {"event_id": event_id, "now_ms": now_ms, "count_max": ASK_MAX}
            late = list(await connection.execute(PAYING_TOO_LONG, values))
        if not late:
            return
        refs = [PaymentRef(reservation_id=r.reservation_id, order_reference=r.order_reference) for r in late]
        try:
            words = (await self._orders.payments(refs)).payments
        except Problem as problem:
            log.warning("orders.silent", extra=data(event_id=event_id, problem=problem.slug, waiting=len(refs)))
            return
        gone = [ref for ref, word in zip(refs, words, strict=True) if word in ("dead", "absent")]
        if gone:
            await self._payments.release([PaymentStep(**ref.model_dump()) for ref in gone], how="orders-gone")
