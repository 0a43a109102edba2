"""Whoever must give tickets back after an oversell: first the ledger takes them back, then orders returns the money.

Both may be asked again without harm, so a row is done only when orders has answered; silent orders are asked next time.
"""

import logging

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.reservations.returns import ReturnService
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.inventory")
BATCH_MAX = 50
REASON = ACTOR = "oversell"
DUE = text(
    "SELECT event_id, reservation_id, order_reference, returned_at FROM inventory.oversell_return "
    "WHERE refunded_at IS NULL ORDER BY event_id, oversell_id, reservation_id LIMIT :count_max"
)
IS_RETURNED = text(
    "UPDATE inventory.oversell_return r SET returned_at = clock_timestamp() "
    "FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[])) AS back (event_id, reservation_id) "
    "WHERE r.event_id = back.event_id AND r.reservation_id = back.reservation_id AND r.returned_at IS NULL"
)
IS_REFUNDED = text(
    "UPDATE inventory.oversell_return r SET refund = told.word, refunded_at = clock_timestamp() "
    "FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]), CAST(:words AS text[])) "
    "AS told (event_id, reservation_id, word) "
    "WHERE r.event_id = told.event_id AND r.reservation_id = told.reservation_id AND r.refunded_at IS NULL"
)
ENDED = text(
    "UPDATE inventory.oversell o SET status = 'cancelled', ended_at = clock_timestamp() WHERE o.status = 'cancelling' "
    "AND NOT EXISTS (SELECT 1 FROM inventory.oversell_return r WHERE r.oversell_id = o.id AND r.refunded_at IS NULL)"
)


class OversellRefunds:
    """One turn of a loop; several may run."""

    def __init__(self, db: AsyncEngine, returns: ReturnService, orders: OrdersClient) -> None:
        self._db, self._returns, self._orders = db, returns, orders

    async def turn(self) -> int:
        """How many were refunded, as far as orders has taken it on."""
        async with self._db.connect() as connection:
            due = list(await connection.execute(DUE, {"count_max": BATCH_MAX}))
        if not due:
            return 0
        event_ids, ids = [row.event_id for row in due], [row.reservation_id for row in due]
        steps = [PaymentStep(reservation_id=r.reservation_id, order_reference=r.order_reference) for r in due]
        await self._returns.take_back(steps, reason=REASON, actor=ACTOR)
        async with self._db.begin() as connection:
            await connection.execute(IS_RETURNED, {"event_ids": event_ids, "ids": ids})
        refs = [PaymentRef(**step.model_dump(exclude={"customer_key"})) for step in steps]
        try:
            words = (await self._orders.refund(refs, reason=REASON)).refunds
        except Problem as problem:
            log.warning("orders.silent", extra=data(problem=problem.slug, refunds=len(refs)))
            return 0
        told = [(r.event_id, r.reservation_id, word) for r, word in zip(due, words, strict=True) if word != "later"]
        async with self._db.begin() as connection:
            values = {name: [row[i] for row in told] for i, name in enumerate(("event_ids", "ids", "words"))}
            await connection.execute(IS_REFUNDED, values)
            await connection.execute(ENDED)
        return len(told)
