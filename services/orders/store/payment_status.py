"""Tells inventory whether the order that is paying for a reservation still needs its hold.

An order that is missing gets a tombstone, and can never be created.
"""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.tables import order
from shared.contracts.orders import PaymentRef
from shared.postgres.engine import AsyncEngine

PaymentStatus = Literal["live", "dead", "absent"]
TOMBSTONE = "tombstone"


async def payment_statuses(db: AsyncEngine, payments: Sequence[PaymentRef]) -> list[PaymentStatus]:
    """One status for each payment."""
    orders = await _orders_or_tombstones(db, sorted({payment.order_reference for payment in payments}))
    return [_status(orders[p.order_reference].status, orders[p.order_reference].reservation_id, p) for p in payments]


async def write_tombstone(db: AsyncEngine, reference: str) -> bool:
    """Ensures that no order can ever be created under this reference. False if there is one already."""
    return bool((await _orders_or_tombstones(db, [reference]))[reference].status == TOMBSTONE)


async def _orders_or_tombstones(db: AsyncEngine, references: Sequence[str]) -> dict[str, Any]:
    """Missing orders get a tombstone first, in a transaction of its own, so that an order in creation has either
    committed or lost before the rows are read.
    """
    tombstones = [{"reference": reference, "status": TOMBSTONE} for reference in references]
    async with db.begin() as connection:
        await connection.execute(insert(order).values(tombstones).on_conflict_do_nothing())
    query = select(order.c.reference, order.c.status, order.c.reservation_id).where(order.c.reference.in_(references))
    async with db.connect() as connection:
        return {row.reference: row for row in await connection.execute(query)}


def _status(status: str, reservation_id: str | None, payment: PaymentRef) -> PaymentStatus:
    """An order of another reservation does not need this hold. `review` and late payments still need theirs."""
    if status == TOMBSTONE:
        return "absent"
    if reservation_id != payment.reservation_id:
        return "dead"
    return "dead" if status in ("cancelled", "expired", "refunded") else "live"
