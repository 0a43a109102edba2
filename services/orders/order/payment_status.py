"""Tells inventory whether the order that is paying for a reservation still needs its hold."""

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.tables import order
from shared.contracts.orders import PaymentRef
from shared.postgres.engine import AsyncEngine

PaymentStatus = Literal["live", "dead", "absent"]


async def payment_statuses(db: AsyncEngine, payments: Sequence[PaymentRef]) -> list[PaymentStatus]:
    """One status for each payment. A missing order gets a tombstone first, in a transaction of its own, so that an
    order in creation has either committed or lost before the rows are read.
    """
    references = sorted({payment.order_reference for payment in payments})
    async with db.begin() as connection:
        rows = [{"reference": reference, "status": "tombstone"} for reference in references]
        await connection.execute(insert(order).values(rows).on_conflict_do_nothing())
    query = select(order.c.reference, order.c.status, order.c.reservation_id).where(order.c.reference.in_(references))
    async with db.connect() as connection:
        orders = {row.reference: row for row in await connection.execute(query)}
    return [_status(orders[p.order_reference].status, orders[p.order_reference].reservation_id, p) for p in payments]


def _status(status: str, reservation_id: str | None, payment: PaymentRef) -> PaymentStatus:
    """An order of another reservation does not need this hold. `review` and late payments still need theirs."""
    if status == "tombstone":
        return "absent"
    if reservation_id != payment.reservation_id:
        return "dead"
    return "dead" if status in ("cancelled", "expired", "refunded") else "live"
