"""Returns and refunds for buyers who lose their tickets after an oversell: return the stock, then request the refund.

Both are idempotent, so a row is closed only when orders has answered; otherwise the next run repeats it.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reservations.returns import ReturnService
from shared.concurrency.background import Quiet
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.errors.problems import Problem
from shared.postgres.engine import statement
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
BATCH_MAX = 50
REASON = ACTOR = "oversell"
DUE = text(
    "SELECT event_id, reservation_id, order_reference, returned_at FROM inventory.oversell_return "
    "WHERE refunded_at IS NULL ORDER BY event_id, oversell_id, reservation_id LIMIT :count_max"
)
MARK_RETURNED = text(
    "UPDATE inventory.oversell_return r SET returned_at = clock_timestamp() "
    "FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[])) AS returned (event_id, reservation_id) "
    "WHERE r.event_id = returned.event_id AND r.reservation_id = returned.reservation_id AND r.returned_at IS NULL"
)
MARK_REFUNDED = statement(__package__, "mark_refunded")
CLOSE_CASES = text(
    "UPDATE inventory.oversell o SET status = 'cancelled', ended_at = clock_timestamp() WHERE o.status = 'cancelling' "
    "AND NOT EXISTS (SELECT 1 FROM inventory.oversell_return r WHERE r.oversell_id = o.id AND r.refunded_at IS NULL)"
)


class OversellRefunds:
    """Any number of processes may run it."""

    def __init__(self, db: AsyncEngine, returns: ReturnService, orders: OrdersClient) -> None:
        self._db, self._returns, self._orders = db, returns, orders

    async def run_once(self) -> int | Quiet:
        """Handles up to `BATCH_MAX` returns; for how many orders accepted the refund."""
        async with self._db.connect() as connection:
            due = list(await connection.execute(DUE, {"count_max": BATCH_MAX}))
        if not due:
            return Quiet()
        event_ids, ids = [row.event_id for row in due], [row.reservation_id for row in due]
        refs = [PaymentRef(reservation_id=r.reservation_id, order_reference=r.order_reference) for r in due]
        steps = [PaymentStep(event_id=e, **ref.model_dump()) for e, ref in zip(event_ids, refs, strict=True)]
        await self._returns.return_stock(steps, reason=REASON, actor=ACTOR)
        async with self._db.begin() as connection:
            await connection.execute(MARK_RETURNED, {"event_ids": event_ids, "ids": ids})
        try:
            answers = (await self._orders.refund(refs, reason=REASON)).refunds
        except Problem as problem:
            log.warning("orders.unreachable", problem=problem.slug, refunds=len(refs))
            return 0
        done = [
            (r.event_id, r.reservation_id, answer) for r, answer in zip(due, answers, strict=True) if answer != "later"
        ]
        async with self._db.begin() as connection:
            values = {name: [row[i] for row in done] for i, name in enumerate(("event_ids", "ids", "refunds"))}
            await connection.execute(MARK_REFUNDED, values)
            await connection.execute(CLOSE_CASES)
        return len(done)
