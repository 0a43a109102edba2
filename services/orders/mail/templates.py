"""Mail in the language of its order or hold, as plain text and as escaped HTML.

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

from services.orders.mail_settings import needs_smtputf8, parse_mailbox
from services.orders.tickets.bill import NO_BILL, Bill, WrittenRow
from services.orders.tickets.show import ShowInfo
from shared.words.words import ISOLATES, Words

SUBJECT_MAX_CHARS = 150
OrderKind = Literal["confirmed", "refunded", "oversold", "late"]
HoldKind = Literal["remind", "hold_over"]


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
    kind: OrderKind, show: ShowInfo, reference: str, *, text: Words, currency: str, amount_minor: int, link: str,
    attachment: tuple[str, bytes] | None = None, bill: Bill = NO_BILL,
) -> EmailContent:  # fmt: skip
    """A mail about an order that was confirmed or refunded; `amount_minor` is what was paid or refunded. A confirmation
    has the whole bill, the news of a refund its sums.
    """
    name, amount = single_line(show.name), text.money(amount_minor, currency)
    show_line = text.listed(name, show.when(text), single_line(show.venue))
    back, (rows, sums, taxes) = text("mail_back", amount=amount), bill.written(text)
    subject, paragraphs = {
        "confirmed": (
            text("mail_confirmed_subject", name=name),
            (text("mail_going", show=show_line), text("mail_paid", amount=amount), text("mail_keep")),
        ),
        "refunded": (text("mail_refunded_subject", name=name), (text("mail_refunded", show=show_line), back)),
        "oversold": (text("mail_oversold_subject", name=name), (text("mail_oversold"), back)),
        "late": (text("mail_late_subject", name=name), (text("mail_late"), back)),
    }[kind]
    return EmailContent(
        text=text, subject=subject, paragraphs=(*paragraphs, text("mail_order", reference=reference)),
        label=text("your_order"), link=link, attachment=attachment,
        rows={"confirmed": (*rows, *sums, *taxes), "refunded": (*sums,)}.get(kind, ()),
    )  # fmt: skip


def hold_email(kind: HoldKind, show: ShowInfo, *, text: Words, link: str, unsubscribe_url: str) -> EmailContent:
    """A reminder before a hold ends, or the news that it has ended."""
    name = single_line(show.name)
    subject, paragraph = {
        "remind": (text("mail_remind_subject", name=name), text("mail_remind")),
        "hold_over": (text("mail_hold_over_subject", name=name), text("mail_hold_over")),
    }[kind]
    return EmailContent(
        text=text, subject=subject, paragraphs=(paragraph,), label=name, link=link, unsubscribe_url=unsubscribe_url
    )


def build_message(content: EmailContent, *, sender: Address, to: str, message_id: str, at: datetime) -> EmailMessage:
    """The message to send; a retry has the same `Message-ID`. Raises `InvalidMailbox`."""
    mail = EmailMessage(policy=UTF8_POLICY if needs_smtputf8(to) else SMTP_POLICY)
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
    mail["Content-Language"] = content.text.language
    return mail


def single_line(text: str) -> str:
    """The text without line breaks and control characters, which could start another header; cut to 150 characters."""
    shown = (sign if sign.isprintable() or sign in ISOLATES else " " for sign in text)
    return " ".join("".join(shown).split())[:SUBJECT_MAX_CHARS]


def text_body(content: EmailContent) -> str:
    """The mail as plain text."""
    text, links = content.text, [(content.label, content.link)]
    if content.unsubscribe_url:
        links.append((content.text("mail_stop"), content.unsubscribe_url))
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
    stop = ""
    if content.unsubscribe_url:
        stop = f'<p><small><a href="{escape(content.unsubscribe_url)}">{escape(text("mail_stop"))}</a></small></p>'
    page = f'<!doctype html><html lang="{text.language}" dir="{text.direction}">'
    return f"{page}<body>{paragraphs}{rows}{link}{stop}</body></html>"
