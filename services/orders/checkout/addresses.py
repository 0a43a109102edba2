"""The correction of an order's e-mail address by who holds the order.

It is for mail alone: limits per customer go on counting the mailbox that bought.
"""

from sqlalchemy import func, insert, update

from services.orders.model.order import SOLD_STATUSES, Order
from services.orders.model.update import OrderUpdate
from services.orders.problems import AddressChangeRefused
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log, mail
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection

CHANGES_MAX = 3
CHANGEABLE_STATUSES = ("pending", "review", *sorted(SOLD_STATUSES))
BUYER = Actor(name="fan", role="fan", reason="The buyer corrected the e-mail address.")


async def change_address(store: OrderStore, order: Order, address: str, *, sends_mail: bool) -> None:
    """From now on mail about this order goes to `address`, also what waits to be sent; of a sold order the confirmation
    goes there once more. Raises `AddressChangeRefused`.
    """

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate | None:
        if address == order.customer_email:
            return None  # the same request came twice
        if order.status not in CHANGEABLE_STATUSES or order.address_changes >= CHANGES_MAX:
            raise AddressChangeRefused
        changes = order.address_changes + 1
        waiting = (mail.c.reference == order.reference) & mail.c.sent_at.is_(None) & mail.c.abandoned_at.is_(None)
        moved = update(mail).where(waiting).values(address=address, due_at=func.clock_timestamp())
        kinds = set(await connection.scalars(moved.returning(mail.c.kind)))
        if sends_mail and order.status in SOLD_STATUSES and "confirmed" not in kinds:
            await connection.execute(
                insert(mail).values(
                    mail_key=f"moved:{order.reference}:{changes}", kind="confirmed", address=address,
                    event_id=order.event_id, reference=order.reference, budget="own",
                )
            )  # fmt: skip
        await audit_log.write(
            connection, "change-email", BUYER, subject=f"order:{order.reference}", before={"status": order.status},
            after={"changes": changes},
        )  # fmt: skip
        return OrderUpdate(order).set_order(customer_email=address)

    if address != order.customer_email:
        await store.change(order.reference, decide)
