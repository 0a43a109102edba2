"""The e-mail address of an order: what is checked before anything is paid, and its correction by who holds the order.

A correction is for mail alone: limits per customer go on counting the mailbox that bought.
"""

from sqlalchemy import insert, select, update

from services.orders.mail.smtp import MailServer
from services.orders.mail.tables import mail
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.states import SOLD_STATUSES
from services.orders.problems import AddressChangeRefused, EmailLikelyMistyped
from services.orders.tables import audit_log
from services.orders.tables import order as order_table
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.rules.email_addresses import suggested_address

CHANGES_MAX = 3
CHANGEABLE_STATUSES = ("pending", "review", *sorted(SOLD_STATUSES))
BUYER = Actor(name="fan", role="fan", reason="The buyer corrected the e-mail address.")


def check_address(server: MailServer | None, address: str, check_spelling: bool) -> None:
    """Raises `AddressNotMailable` for an address that this mail server can never write to and, with `check_spelling`,
    `EmailLikelyMistyped` with a `suggestion`. Without a mail server nobody gets mail, and every address is fine.
    """
    if server is not None:
        server.require_mailable(address)
    if check_spelling and (suggestion := suggested_address(address)) is not None:
        raise EmailLikelyMistyped(suggestion=suggestion)


async def change_address(db: AsyncEngine, order: Order, address: str, *, sends_mail: bool) -> None:
    """From now on mail about this order goes to `address`, also what waits to be sent; of a sold order the confirmation
    goes there once more. Raises `AddressChangeRefused`.
    """
    if address == order.customer_email:
        return
    mine = order_table.c.reference == order.reference
    may = (order_table.c.status.in_(CHANGEABLE_STATUSES), order_table.c.address_changes < CHANGES_MAX)
    change = update(order_table).where(mine, *may, order_table.c.customer_email != address)
    change = change.values(
        customer_email=address, address_changes=order_table.c.address_changes + 1, unmailed_at=None,
        changed_at=leases.NOW, version=order_table.c.version + 1,
    )  # fmt: skip
    async with db.begin() as connection:
        changed = change.returning(order_table.c.status, order_table.c.address_changes)
        row = (await connection.execute(changed)).one_or_none()
        if row is None:
            if await connection.scalar(select(order_table.c.customer_email).where(mine)) == address:
                return  # the same request came twice
            raise AddressChangeRefused
        confirmed_waits = await _redirect(connection, order.reference, address)
        if sends_mail and row.status in SOLD_STATUSES and not confirmed_waits:
            await connection.execute(
                insert(mail).values(
                    mail_key=f"moved:{order.reference}:{row.address_changes}", kind="confirmed", address=address,
                    event_id=order.event_id, reference=order.reference, budget="own",
                )
            )  # fmt: skip
        await audit_log.write(
            connection, "change-email", BUYER, subject=f"order:{order.reference}", before={"status": row.status},
            after={"changes": row.address_changes},
        )  # fmt: skip


async def _redirect(connection: AsyncConnection, reference: str, address: str) -> bool:
    """Whether a confirmation was among what waits to be sent, and goes to the new address now."""
    waiting = (mail.c.reference == reference) & mail.c.sent_at.is_(None) & mail.c.abandoned_at.is_(None)
    moved = update(mail).where(waiting).values(address=address, due_at=leases.NOW).returning(mail.c.kind)
    return "confirmed" in set(await connection.scalars(moved))
