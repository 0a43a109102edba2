"""The e-mail address of an order: what is checked before anything is paid, its correction by who holds the order, and
the links of an address's orders once more, for who has lost the mail and is in another browser.

A correction is for mail alone: limits per customer go on counting the mailbox that bought. Links go only to the address
that an order has, so nobody else learns anything; a repeated request sends nothing for a while.
"""

from sqlalchemy import func, insert, update

from services.orders.mail.smtp import MailServer
from services.orders.mail_settings import needs_smtputf8
from services.orders.model.order import SOLD_STATUSES, Order
from services.orders.model.update import OrderUpdate
from services.orders.problems import AddressChangeRefused, AddressNotMailable, EmailLikelyMistyped
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log, mail
from shared.audit_log import Actor
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.rules.addresses import spellings, suggested_address

_SEND_AGAIN = statement(__package__, "send_again")
CHANGES_MAX, ORDERS_MAX = 3, 10
CHANGEABLE_STATUSES = ("pending", "review", *sorted(SOLD_STATUSES))
BUYER = Actor(name="fan", role="fan", reason="The buyer corrected the e-mail address.")


def check_address(server: MailServer | None, address: str, check_spelling: bool) -> None:
    """Raises `AddressNotMailable` for an address that this mail server can never write to and, with `check_spelling`,
    `EmailLikelyMistyped` with a `suggestion`. Without a mail server nobody gets mail, and every address is fine.
    """
    if server is not None and needs_smtputf8(address) and not server.has_smtputf8:
        raise AddressNotMailable
    if check_spelling and (suggestion := suggested_address(address)) is not None:
        raise EmailLikelyMistyped(suggestion=suggestion)


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


async def send_again(db: AsyncEngine, address: str) -> None:
    """Queues the confirmations of this address's latest orders; of an unknown address none."""
    in_ascii, in_unicode = spellings(address)
    bound = {"address": in_ascii, "in_unicode": in_unicode, "statuses": sorted(SOLD_STATUSES), "many": ORDERS_MAX}
    async with db.begin() as connection:
        await connection.execute(_SEND_AGAIN, bound)
