"""Writes a mail when it is time to send it, from the rows as they are then: what is no longer true is not written."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import NamedTuple, get_args

from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.mail import templates
from services.orders.mail.reminders import is_stopped, stop_token
from services.orders.mail.smtp import address_of
from services.orders.mail.templates import EmailContent, HoldKind, OrderKind
from services.orders.order.next_step import Order
from services.orders.order.references import customer_key
from services.orders.order.repository import OrderRepository
from services.orders.order.states import BACKED
from services.orders.settings import Settings
from services.orders.tickets import pdf
from services.orders.tickets import show as tickets_show
from services.orders.tickets.pdf import PdfRenderer
from services.orders.tickets.show import ShowInfo
from services.orders.tickets.tickets import TicketSigner, tickets_of
from shared.runtime.clock import now_ms, to_datetime
from shared.security.order_tokens import sign_order_token

STILL_HELD = ("pending_payment", "paying")
LOOK_AGAIN_S = 5


class PendingMail(NamedTuple):
    """A mail as its row says. The order of `sql/take_mails.sql`."""

    mail_key: str
    kind: str
    address: str
    event_id: str
    reference: str | None
    reservation_id: str | None
    amount_minor: int | None
    created_at: datetime
    tries: int
    age_s: float


class Obsolete(Exception):
    """What this mail would say is not so any more; the message says why."""


class TooEarly(Exception):
    """It will be time later."""

    def __init__(self, until: datetime) -> None:
        super().__init__(until)
        self.until = until


@dataclass(frozen=True, slots=True)
class MailComposer:
    """Knows where to read what a mail says."""

    book: OrderRepository
    stock: InventoryBatcher
    printer: PdfRenderer
    settings: Settings

    async def compose(self, owed: PendingMail, *, message_id: str) -> EmailMessage:
        """Raises `TooEarly`, `Obsolete`, `NoMailbox`, and what neighbours raise."""
        show = await tickets_show.read(self.book.db, owed.event_id)
        letter = await (self._of_order(owed, show) if owed.reference else self._of_hold(owed, show))
        sender = address_of(self.settings.mail_from)
        return templates.message(letter, sender=sender, to=owed.address, message_id=message_id, at=owed.created_at)

    async def _of_order(self, owed: PendingMail, show: ShowInfo) -> EmailContent:
        order = await self.book.read(owed.reference or "")
        kind = next((kind for kind in get_args(OrderKind) if kind == owed.kind), None)
        if order is None or kind is None or (kind == "confirmed" and order.status not in BACKED):
            raise Obsolete("the order has changed")
        token = sign_order_token(self.settings.order_token_keys, order.reference)
        return templates.order_email(
            kind, show, order.reference, currency=order.currency,
            amount_minor=order.total_minor if owed.amount_minor is None else owed.amount_minor,
            link=f"{self.settings.public_url}/o/{order.reference}#key={token}",
            attachment=await self._attachment(order, show) if kind == "confirmed" else None,
        )  # fmt: skip

    async def _attachment(self, order: Order, show: ShowInfo) -> tuple[str, bytes] | None:
        codes = TicketSigner(self.settings)
        if not self.settings.mail_tickets or codes.window_s:
            return None
        pages = pdf.pages(order, show, await tickets_of(self.book.db, order.reference), codes)
        return (f"tickets-{order.reference}.pdf", await self.printer.tickets(pages)) if pages else None

    async def _of_hold(self, owed: PendingMail, show: ShowInfo) -> EmailContent:
        """Only for a hold that stands as the mail says, and only while its reader still wants it."""
        customer = customer_key(self.settings.customer_keys, owed.address)
        if await is_stopped(self.book.db, customer):
            raise Obsolete("its reader opted out")
        held = await self.stock.read(owed.reservation_id or "")
        kind = next((kind for kind in get_args(HoldKind) if kind == owed.kind), None)
        if held is None or kind is None:
            raise Obsolete("there is no such reservation")
        ends_at = to_datetime(held.reserved_until_ms)
        if kind == "remind":
            if held.status != "pending_payment" or held.reserved_until_ms <= now_ms():
                raise Obsolete(f"the reservation is {held.status}")
            if (remind_at := ends_at - timedelta(seconds=self.settings.reminder_lead_s)) > to_datetime(now_ms() + 1000):
                raise TooEarly(remind_at)
        elif held.status in STILL_HELD:
            raise TooEarly(max(ends_at, to_datetime(now_ms())) + timedelta(seconds=held.grace_s + LOOK_AGAIN_S))
        elif held.status != "expired":
            raise Obsolete(f"the reservation is {held.status}")
        stop = f"{self.settings.public_url}/reminders/stop/{stop_token(self.settings.customer_keys, customer)}"
        return templates.hold_email(kind, show, link=f"{self.settings.public_url}/e/{owed.event_id}", stop=stop)
