"""Composes a mail when it is due, from the order or reservation as it is then.

A mail whose content is no longer true is not composed: it is obsolete, or it is too early and due again later.

Mails are in the language of their order or hold, as plain text and as escaped HTML. They contain nothing a buyer
typed, so this server cannot be used as a spam relay: names are on the attached tickets alone. A mail is no proof of
purchase: it links to the order page, which is.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from typing import Any, Literal, NamedTuple

from features.mail.orders.reminders import LEAD_S, UNSUBSCRIBE, has_opted_out
from features.mail.orders.smtp import MailSettings, needs_smtputf8, parse_mailbox, parse_sender
from services.orders.model.order import SOLD_STATUSES, TypeName, customer_key
from services.orders.settings import Settings
from services.orders.steps.run import InventoryBatcher
from services.orders.store.store import OrderStore
from services.orders.tickets.bill import NO_BILL, Bill, WrittenRow, order_bill
from services.orders.tickets.show import ShowInfo, read_show
from services.orders.tickets.tickets import PaperPorts
from shared.runtime.clock import now_ms, to_datetime
from shared.security.tokens import sign_order_token
from shared.words.words import DEFAULT_LANGUAGE, ISOLATES, Words, words

Budget = Literal["asked", "own"]  # against which limit of its recipient a mail counts
STILL_HELD = ("pending_payment", "paying")
RECHECK_AFTER_S = 5
SUBJECT_MAX_CHARS = 150


class LongLinePolicy(EmailPolicy):
    """Folds headers as SMTP wants, but never `UNFOLDED_HEADERS`: the library would break their ids and URLs past 78
    characters.
    """

    def fold_binary(self, name: str, value: Any) -> bytes:
        return f"{name}: {value}\r\n".encode("ascii") if name in UNFOLDED_HEADERS else super().fold_binary(name, value)


UNFOLDED_HEADERS = ("Message-ID", "List-Unsubscribe")
SMTP_POLICY = LongLinePolicy(linesep="\r\n")
UTF8_POLICY = SMTP_POLICY.clone(utf8=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailContent:
    """One mail without its address. `unsubscribe_url` stops such mail; `attachment` is a file name and a PDF."""

    text: Words
    subject: str
    paragraphs: tuple[str, ...]
    label: str
    link: str
    unsubscribe_url: str | None = None
    attachment: tuple[str, bytes] | None = None
    rows: tuple[WrittenRow, ...] = ()


def order_email(
    kind: str, show: ShowInfo, reference: str, *, text: Words, currency: str, amount_minor: int, link: str,
    attachment: tuple[str, bytes] | None = None, bill: Bill = NO_BILL, types: Sequence[TypeName] = (),
) -> EmailContent:  # fmt: skip
    """A mail about an order that was confirmed or refunded; `amount_minor` is what was paid or refunded. A confirmation
    has the whole bill and what is shown at the door for tickets of these price types, the news of a refund its sums.
    """
    name, amount = single_line(show.name), text.money(amount_minor, currency)
    show_line = text.listed(name, show.when(text), single_line(show.venue))
    back, (rows, sums, taxes) = text("mail_back", amount=amount), bill.written(text, currency)
    paragraphs = {
        "confirmed": (
            text("mail_going", show=show_line),
            text("mail_paid", amount=amount),
            text("mail_keep"),
            *(
                text("mail_proof", type=single_line(each.name), proof=single_line(each.proof))
                for each in types
                if each.proof
            ),
        ),
        "refunded": (text("mail_refunded", show=show_line), back),
        "oversold": (text("mail_oversold"), back),
        "late": (text("mail_late"), back),
    }[kind]
    return EmailContent(
        text=text, subject=text(f"mail_{kind}_subject", name=name), label=text("your_order"), link=link,
        paragraphs=(*paragraphs, text("mail_order", reference=reference)), attachment=attachment,
        rows={"confirmed": (*rows, *sums, *taxes), "refunded": (*sums,)}.get(kind, ()),
    )  # fmt: skip


def hold_email(kind: str, show: ShowInfo, *, text: Words, link: str, unsubscribe_url: str) -> EmailContent:
    """A reminder before a hold ends, or the news that it has ended."""
    name = single_line(show.name)
    return EmailContent(
        text=text, subject=text(f"mail_{kind}_subject", name=name), paragraphs=(text(f"mail_{kind}"),), label=name,
        link=link, unsubscribe_url=unsubscribe_url,
    )  # fmt: skip


def build_message(content: EmailContent, *, sender: Address, to: str, message_id: str, at: datetime) -> EmailMessage:
    """The message to send; a retry has the same `Message-ID`. Raises `InvalidMailbox`."""
    mail = EmailMessage(policy=UTF8_POLICY if needs_smtputf8(to) else SMTP_POLICY)
    mail["From"], mail["To"] = sender, parse_mailbox(to)
    mail["Subject"] = single_line(content.subject)
    mail["Date"], mail["Message-ID"] = format_datetime(at), message_id
    mail["Auto-Submitted"] = "auto-generated"
    if content.unsubscribe_url is not None:
        mail["List-Unsubscribe"] = f"<{content.unsubscribe_url}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    mail.set_content(text_body(content))
    mail.add_alternative(html_body(content), subtype="html")
    if content.attachment is not None:
        name, pdf = content.attachment
        mail.add_attachment(pdf, maintype="application", subtype="pdf", filename=name)
    mail["Content-Language"] = content.text.language
    return mail


def single_line(text: str) -> str:
    """The text without line breaks and control characters, which could start another header; cut to 150 characters."""
    shown = (sign if sign.isprintable() or sign in ISOLATES else " " for sign in text)
    return " ".join("".join(shown).split())[:SUBJECT_MAX_CHARS]


def text_body(content: EmailContent) -> str:
    text, stop = content.text, content.unsubscribe_url
    links = [(content.label, content.link), *([(text("mail_stop"), stop)] if stop else [])]
    named = ((single_line(name), amount) for name, amount in content.rows)
    rows = "".join(f"\n{text('labelled', label=name, what=amount) if amount else name}" for name, amount in named)
    return (
        "\n\n".join(content.paragraphs)
        + (f"\n{rows}" if rows else "")
        + "".join(f"\n\n{text('labelled', label=label, what=address)}" for label, address in links)
        + "\n"
    )


def html_body(content: EmailContent) -> str:
    """The mail as HTML, with nothing to load from elsewhere."""
    text = content.text
    paragraphs = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in content.paragraphs)
    cells = (f"<tr><td>{escape(name)}</td><td>{escape(amount)}</td></tr>" for name, amount in content.rows)
    rows = '<table cellpadding="4">' + "".join(cells) + "</table>" if content.rows else ""
    link = f'<p><a href="{escape(content.link)}">{escape(content.label)}</a></p>'
    url, label = escape(content.unsubscribe_url or ""), escape(text("mail_stop"))
    stop = f'<p><small><a href="{url}">{label}</a></small></p>' if url else ""
    page = f'<!doctype html><html lang="{text.language}" dir="{text.direction}">'
    return f"{page}<body>{paragraphs}{rows}{link}{stop}</body></html>"


# -- composing ---------------------------------------------------------------------------------------------------------


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
    store: OrderStore
    stock: InventoryBatcher
    papers: PaperPorts
    settings: Settings
    mail: MailSettings

    async def compose(self, pending: PendingMail) -> EmailMessage:
        """Raises `TooEarly`, `Obsolete`, `InvalidMailbox`, and the problems of inventory and of papers."""
        show = await read_show(self.store.db, pending.event_id)
        if show.rehearsal:
            raise Obsolete("the event is a rehearsal: its fans are made up")
        content = await (self._order_email(pending, show) if pending.reference else self._hold_email(pending, show))
        sender = parse_sender(self.mail.mail_from)
        key = hashlib.sha256(pending.mail_key.encode()).hexdigest()[:40]
        return build_message(
            content, sender=sender, to=pending.address, message_id=f"<{key}@{sender.domain or 'localhost'}>",
            at=pending.created_at,
        )  # fmt: skip

    async def _order_email(self, pending: PendingMail, show: ShowInfo) -> EmailContent:
        order = await self.store.read(pending.reference or "")
        kind = pending.kind
        if order is None or (kind == "confirmed" and order.status not in SOLD_STATUSES):
            raise Obsolete("the order has changed")
        is_printed = kind == "confirmed" and self.mail.mail_tickets and not self.settings.ticket_window_s
        paper = await self.papers.tickets(order, show) if is_printed and self.papers.tickets else None
        token = sign_order_token(self.settings.order_token_keys, order.reference)
        return order_email(
            kind, show, order.reference, text=words(order.language), currency=order.currency,
            amount_minor=order.total_minor if pending.amount_minor is None else pending.amount_minor,
            link=f"{self.settings.public_url}/o/{order.reference}#key={token}",
            attachment=(f"tickets-{order.reference}.pdf", paper) if paper else None,
            bill=order_bill(order, show, words(order.language)), types=order.types_left,
        )  # fmt: skip

    async def _hold_email(self, pending: PendingMail, show: ShowInfo) -> EmailContent:
        """A reminder for an unpaid hold, or the news of its end; only while the customer has not opted out."""
        customer = customer_key(self.settings.customer_keys, pending.address)
        if await has_opted_out(self.store.db, customer):
            raise Obsolete("the customer opted out")
        held = await self.stock.read(pending.reservation_id or "")
        if held is None:
            raise Obsolete("there is no such reservation")
        ends_at = to_datetime(held.reserved_until_ms)
        if pending.kind == "remind":
            if held.status != "pending_payment" or held.reserved_until_ms <= now_ms():
                raise Obsolete(f"the reservation is {held.status}")
            if (remind_at := ends_at - timedelta(seconds=LEAD_S)) > to_datetime(now_ms() + 1000):
                raise TooEarly(remind_at)
        elif held.status in STILL_HELD:
            raise TooEarly(max(ends_at, to_datetime(now_ms())) + timedelta(seconds=held.grace_s + RECHECK_AFTER_S))
        elif held.status != "expired":
            raise Obsolete(f"the reservation is {held.status}")
        public_url = self.settings.public_url
        token = sign_order_token(self.settings.customer_keys, customer, purpose=UNSUBSCRIBE)
        return hold_email(
            pending.kind, show, text=words(pending.language or DEFAULT_LANGUAGE),
            link=f"{public_url}/e/{pending.event_id}", unsubscribe_url=f"{public_url}/reminders/stop/{token}",
        )  # fmt: skip
