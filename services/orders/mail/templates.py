"""The texts of mail, as plain text and as escaped HTML.

They contain nothing a buyer typed, so this server cannot be used as a spam relay. A mail is no proof of purchase: it
links to the order page, which is.
"""

from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from typing import Any, Literal

from services.orders.mail_settings import parse_mailbox
from services.orders.tickets.show import ShowInfo
from shared.rules.money import format_money

SUBJECT_MAX_CHARS = 150
OrderKind = Literal["confirmed", "refunded", "oversold", "late"]
HoldKind = Literal["remind", "hold_over"]
KEEP_ORDER_PAGE = "Your order page is your receipt and has your tickets; keep its address to yourself."


class LongLinePolicy(EmailPolicy):
    """Folds headers as SMTP wants, but never `UNFOLDED_HEADERS`: the library would break their ids and URLs past 78
    characters.
    """

    def fold_binary(self, name: str, value: Any) -> bytes:
        return f"{name}: {value}\r\n".encode("ascii") if name in UNFOLDED_HEADERS else super().fold_binary(name, value)


UNFOLDED_HEADERS = ("Message-ID", "List-Unsubscribe")
SMTP_POLICY = LongLinePolicy(linesep="\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailContent:
    """One mail without its address. `unsubscribe_url` stops such mail; `attachment` is a file name and a PDF."""

    subject: str
    paragraphs: tuple[str, ...]
    label: str
    link: str
    unsubscribe_url: str | None = None
    attachment: tuple[str, bytes] | None = None


def order_email(
    kind: OrderKind, show: ShowInfo, reference: str, *, currency: str, amount_minor: int, link: str,
    attachment: tuple[str, bytes] | None = None,
) -> EmailContent:  # fmt: skip
    """A mail about an order that was confirmed or refunded; `amount_minor` is what was paid or refunded."""
    amount = format_money(amount_minor, currency)
    show_line = ", ".join(filter(None, (show.name, show.when, show.venue)))
    back = f"{amount} went back the way it was paid. How long it takes to arrive depends on the bank."
    subject, paragraphs = {
        "confirmed": (
            f"Your tickets: {show.name}",
            (f"You are going: {show_line}.", f"Paid: {amount}.", KEEP_ORDER_PAGE),
        ),
        "refunded": (f"Refunded: {show.name}", (f"For your order for {show_line}: {back}",)),
        "oversold": (
            f"Your tickets are cancelled: {show.name}",
            ("We sold more tickets than there are, and yours were among the last. We are sorry.", back),
        ),
        "late": (
            f"Not booked, and refunded: {show.name}",
            ("Your payment came after your order had ended, and your tickets were gone.", back),
        ),
    }[kind]
    paragraphs = (*paragraphs, f"Order {reference}.")
    return EmailContent(subject=subject, paragraphs=paragraphs, label="Your order", link=link, attachment=attachment)


def hold_email(kind: HoldKind, show: ShowInfo, *, link: str, unsubscribe_url: str) -> EmailContent:
    """A reminder before a hold ends, or the news that it has ended."""
    subject, text = {
        "remind": (
            f"Your tickets are held for a few more minutes: {show.name}",
            "You have not paid yet. After that, others may have them.",
        ),
        "hold_over": (f"Your hold has ended: {show.name}", "Your tickets went back on sale. You may choose again."),
    }[kind]
    return EmailContent(
        subject=subject, paragraphs=(text,), label=show.name, link=link, unsubscribe_url=unsubscribe_url
    )


def build_message(content: EmailContent, *, sender: Address, to: str, message_id: str, at: datetime) -> EmailMessage:
    """The message to send; a retry has the same `Message-ID`. Raises `InvalidMailbox`."""
    mail = EmailMessage(policy=SMTP_POLICY)
    mail["From"] = sender
    mail["To"] = parse_mailbox(to)
    mail["Subject"] = single_line(content.subject)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = message_id
    mail["Auto-Submitted"] = "auto-generated"
    if content.unsubscribe_url is not None:
        mail["List-Unsubscribe"] = f"<{content.unsubscribe_url}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    mail.set_content(text_body(content))
    mail.add_alternative(html_body(content), subtype="html")
    if content.attachment is not None:
        name, pdf = content.attachment
        mail.add_attachment(pdf, maintype="application", subtype="pdf", filename=name)
    return mail


def single_line(text: str) -> str:
    """The text without line breaks and control characters, which could start another header; cut to 150 characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:SUBJECT_MAX_CHARS]


def text_body(content: EmailContent) -> str:
    """The mail as plain text."""
    text = "\n\n".join((*map(single_line, content.paragraphs), f"{single_line(content.label)}: {content.link}"))
    return text + (f"\nNo more reminders: {content.unsubscribe_url}" if content.unsubscribe_url else "") + "\n"


def html_body(content: EmailContent) -> str:
    """The mail as HTML, with nothing to load from elsewhere."""
    paragraphs = "".join(f"<p>{escape(single_line(text))}</p>" for text in content.paragraphs)
    link = f'<p><a href="{escape(content.link)}">{escape(single_line(content.label))}</a></p>'
    unsubscribe = ""
    if content.unsubscribe_url:
        unsubscribe = f'<p><small><a href="{escape(content.unsubscribe_url)}">No more reminders</a></small></p>'
    return f'<!doctype html><html lang="en"><body>{paragraphs}{link}{unsubscribe}</body></html>'
