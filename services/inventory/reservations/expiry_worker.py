"""The expiry worker: expires due holds by their deadlines in Redis within a second, and the rest by a database scan.

A hold that is being paid never expires here: past its deadline orders is queried, and it is released only if its order
is `dead` or `absent`.
"""

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.expiry import expire_overdue, resolve_due
from services.inventory.reservations.payment import RELEASE, Payments
from shared.concurrency.background import QUIET_S, Quiet
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.errors.problems import Problem
from shared.postgres.engine import DB_AWAY, statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
DUE_MAX = 500
PAYING_MAX = 100
SCAN_DELAY_MS = 1000  # the deadlines in Redis come first; the scan finds what they missed
SOON_MS = round(1000 * QUIET_S) + 5_000  # a scan sees a deadline before it is due
OVERDUE_EVENTS, OVERDUE_PAYMENTS = statement(__package__, "overdue_events"), statement(__package__, "overdue_payments")


class ExpiryWorker:
    """`sweep` and `scan` are called by loops; any number of processes may run them."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, catalogue: EventCache, payments: Payments, orders: OrdersClient
    ) -> None:
        self._db, self._redis_stock, self._catalogue = db, redis_stock, catalogue
        self._single_reads = db.execution_options(isolation_level="AUTOCOMMIT")
        self._payments, self._orders = payments, orders

    async def sweep(self) -> Quiet:
        """Expires holds by their deadlines in Redis. Quiet until the next one."""
        waits = await self._redis_stock.until_due(layout.event_id for layout in self._catalogue.layouts())
        for event_id in (event_id for event_id, wait_ms in waits.items() if wait_ms <= 0):
            try:
                more = True
                while more:
                    now_ms, due = await self._redis_stock.list_due(event_id, count_max=DUE_MAX)
                    ended = due and await resolve_due(self._db, self._redis_stock, event_id, due, now_ms=now_ms)
                    more = bool(ended) and len(due) == DUE_MAX
            except (*REDIS_AWAY, *DB_AWAY) as away:
                log.warning("expiry.skipped", event_id=event_id, error=type(away).__name__)
        return Quiet(min(QUIET_S, *(wait_ms / 1000 for wait_ms in waits.values())) if waits else QUIET_S)

    async def scan(self) -> Quiet | None:
        """Expires holds by a scan of PostgreSQL, independent of Redis, and checks overdue payments. Quiet unless a
        deadline comes soon: what its order keeps beyond its deadline is asked for in each scan, however rare.
        """
        times = {"now_ms": self._redis_stock.slowest_ms(), "soon_ms": SOON_MS}
        async with self._single_reads.connect() as connection:
            found = (await connection.execute(OVERDUE_EVENTS, times)).all()
        for event_id in (row.event_id for row in found if row.overdue):
            try:
                now_ms, _ = await self._redis_stock.list_due(event_id, count_max=1)
            except REDIS_AWAY:
                continue
            if now_ms:
                before_ms = now_ms - SCAN_DELAY_MS
                while await expire_overdue(self._db, self._redis_stock, event_id, now_ms=before_ms) == DUE_MAX:
                    pass
                await self.check_paying(event_id, now_ms=now_ms)
        return None if any(row.soon for row in found) else Quiet()

    async def check_paying(self, event_id: str, *, now_ms: int) -> None:
        """Releases overdue holds in payment whose order is dead or absent."""
        async with self._db.connect() as connection:
            values = {"event_id": event_id, "now_ms": now_ms, "count_max": PAYING_MAX}
            late = list(await connection.execute(OVERDUE_PAYMENTS, values))
        if not late:
            return
        refs = [PaymentRef(reservation_id=r.reservation_id, order_reference=r.order_reference) for r in late]
        try:
            states = (await self._orders.payments(refs)).payments
        except Problem as problem:
            log.warning("orders.unreachable", event_id=event_id, problem=problem.slug, waiting=len(refs))
            return
        gone = [ref for ref, state in zip(refs, states, strict=True) if state in ("dead", "absent")]
        if gone:
            steps = [PaymentStep(event_id=event_id, **ref.model_dump()) for ref in gone]
            await self._payments.take(RELEASE, steps, reason="orders-gone")
