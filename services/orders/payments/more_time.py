"""More time to pay, once for each order: inventory keeps the places longer, and then the order ends later."""

from sqlalchemy import func, update

from services.orders.checkout.inventory_client import InventoryBatcher, payment_step
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.problems import OrderNotPending
from services.orders.tables import order as order_table
from shared.errors.problems import AlreadyExtended, HoldExpired
from shared.postgres.engine import AsyncEngine


async def extend(db: AsyncEngine, inventory: InventoryBatcher, order: Order) -> None:
    """Gives the buyer of a pending order the time to pay again, from now on. Raises `OrderNotPending`,
    `AlreadyExtended`, `HoldExpired`.

    A crash in between leaves the places held for longer than the order lasts, which then releases them.
    """
    if order.status != "pending" or order.cancel_requested:
        raise OrderNotPending
    if order.extended:
        raise AlreadyExtended
    done = await inventory.extend_payment(payment_step(order))
    if done.outcome != "done" or done.reserved_until_ms is None:
        raise HoldExpired
    mine = order_table.c.reference == order.reference, order_table.c.status == "pending"
    until, version = func.to_timestamp(done.reserved_until_ms / 1000.0), order_table.c.version + 1
    longer = update(order_table).where(*mine, order_table.c.extended_at.is_(None))
    longer = longer.values(
        **leases.WAKE, expires_at=until, extended_at=leases.NOW, changed_at=leases.NOW, version=version
    )  # fmt: skip
    async with db.begin() as connection:
        if not (await connection.execute(longer)).rowcount:
            raise AlreadyExtended
