"""Composes a mail when it is due, from the order or reservation as it is then.

A mail whose content is no longer true is not composed: it is obsolete, or it is too early and due again later.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import NamedTuple, get_args

from services.orders.mail import templates
from services.orders.mail.recipient_limits import Budget
from services.orders.mail.reminders import LEAD_S, has_opted_out, unsubscribe_token
from services.orders.mail.templates import EmailContent, HoldKind, OrderKind
from services.orders.mail_settings import parse_sender
from services.orders.model.order import SOLD_STATUSES, Order
from services.orders.model.references import customer_key
from services.orders.settings import Settings
from services.orders.steps.run import InventoryBatcher
from services.orders.store.store import OrderStore
from services.orders.tickets import pdf
from services.orders.tickets import show as tickets_show
from services.orders.tickets.bill import order_bill
from services.orders.tickets.pdf import PdfRenderer
from services.orders.tickets.show import ShowInfo
from services.orders.tickets.tickets import TicketSigner, tickets_of
from shared.runtime.clock import now_ms, to_datetime
from shared.security.tokens import sign_order_token
from shared.words.words import DEFAULT_LANGUAGE, words

STILL_HELD = ("pending_payment", "paying")
RECHECK_AFTER_S = 5


class PendingMail(NamedTuple):
    """A mail as `sql/lease_mails.sql` answers it; `age_s` counts from its creation. A mail about an order has its
    language from there.
    """

    mail_key: str
    kind: str
    address: str
    event_id: str
    reference: str | None
    reservation_id: str | None
    amount_minor: int | None
    language: str | None
    budget: Budget | None
    created_at: datetime
    tries: int
    age_s: float

    @property
    def counts_as(self) -> Budget | None:
        """The limit that it counts against. A mail about a hold comes of an address that anybody may have typed."""
        return self.budget or (None if self.reference else "asked")


class Obsolete(Exception):
    """The mail's content is no longer true; the message says why."""


@dataclass(eq=False)
class TooEarly(Exception):
    """The mail is due later, at `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class MailComposer:
    """Composes mail from orders, and from reservations of inventory."""

    store: OrderStore
    stock: InventoryBatcher
    printer: PdfRenderer
    settings: Settings

    async def compose(self, pending: PendingMail, *, message_id: str) -> EmailMessage:
        """Raises `TooEarly`, `Obsolete`, `InvalidMailbox`, and the problems of inventory and of the PDF renderer."""
        show = await tickets_show.read_show(self.store.db, pending.event_id)
        if show.rehearsal:
            raise Obsolete("the event is a rehearsal: its fans are made up")
        content = await (self._order_email(pending, show) if pending.reference else self._hold_email(pending, show))
        sender = parse_sender(self.settings.mail_from)
        return templates.build_message(
            content, sender=sender, to=pending.address, message_id=message_id, at=pending.created_at
        )

    async def _order_email(self, pending: PendingMail, show: ShowInfo) -> EmailContent:
        order = await self.store.read(pending.reference or "")
        kind = next((kind for kind in get_args(OrderKind) if kind == pending.kind), None)
        if order is None or kind is None or (kind == "confirmed" and order.status not in SOLD_STATUSES):
            raise Obsolete("the order has changed")
        token = sign_order_token(self.settings.order_token_keys, order.reference)
        return templates.order_email(
            kind, show, order.reference, text=words(order.language), currency=order.currency,
            amount_minor=order.total_minor if pending.amount_minor is None else pending.amount_minor,
            link=f"{self.settings.public_url}/o/{order.reference}#key={token}",
            attachment=await self._attachment(order, show) if kind == "confirmed" else None,
            bill=order_bill(order, show, words(order.language)),
        )  # fmt: skip

    async def _attachment(self, order: Order, show: ShowInfo) -> tuple[str, bytes] | None:
        signer = TicketSigner(self.settings)
        if not self.settings.mail_tickets or signer.window_s:
            return None
        pages = pdf.ticket_pages(order, show, tickets_of(order), signer)
        return (f"tickets-{order.reference}.pdf", await self.printer.tickets(pages)) if pages else None

    async def _hold_email(self, pending: PendingMail, show: ShowInfo) -> EmailContent:
        """A reminder for an unpaid hold, or the news of its end; only while the customer has not opted out."""
        customer = customer_key(self.settings.customer_keys, pending.address)
        if await has_opted_out(self.store.db, customer):
            raise Obsolete("the customer opted out")
        held = await self.stock.read(pending.reservation_id or "")
        kind = next((kind for kind in get_args(HoldKind) if kind == pending.kind), None)
        if held is None or kind is None:
            raise Obsolete("there is no such reservation")
        ends_at = to_datetime(held.reserved_until_ms)
        if kind == "remind":
            if held.status != "pending_payment" or held.reserved_until_ms <= now_ms():
                raise Obsolete(f"the reservation is {held.status}")
            if (remind_at := ends_at - timedelta(seconds=LEAD_S)) > to_datetime(now_ms() + 1000):
                raise TooEarly(remind_at)
        elif held.status in STILL_HELD:
            raise TooEarly(max(ends_at, to_datetime(now_ms())) + timedelta(seconds=held.grace_s + RECHECK_AFTER_S))
        elif held.status != "expired":
            raise Obsolete(f"the reservation is {held.status}")
        public_url, token = self.settings.public_url, unsubscribe_token(self.settings.customer_keys, customer)
        unsubscribe_url = f"{public_url}/reminders/stop/{token}"
        return templates.hold_email(
            kind,
            show,
            text=words(pending.language or DEFAULT_LANGUAGE),
            link=f"{public_url}/e/{pending.event_id}",
            unsubscribe_url=unsubscribe_url,
        )
