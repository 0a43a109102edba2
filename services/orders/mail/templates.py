"""What mail says, in few words: nothing a buyer typed stands in one, so nobody can send theirs through us.

A letter is plain text and the same as HTML, escaped. The order page, to which it leads, is the proof; mail never is.
"""

from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from typing import Any, Literal

from services.orders.mail.smtp import mailbox
from services.orders.tickets.money import money
from services.orders.tickets.show import ShowInfo

SUBJECT_MAX_CHARS = 150
OrderKind = Literal["confirmed", "refunded", "oversold", "late"]
HoldKind = Literal["remind", "hold_over"]
PROOF = "Your order page is your receipt and has your tickets; keep its address to yourself."


class LongLinePolicy(EmailPolicy):
    """As mail travels; an address or an id in a header is never broken, which the library would do past 78 signs."""

    def fold_binary(self, name: str, value: Any) -> bytes:
        return f"{name}: {value}\r\n".encode("ascii") if name in WHOLE else super().fold_binary(name, value)


WHOLE = ("Message-ID", "List-Unsubscribe")
WIRE = LongLinePolicy(linesep="\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailContent:
    """One mail, before it has an address. `stop` is where its reader opts out of such mail."""

    subject: str
    paragraphs: tuple[str, ...]
    label: str
    link: str
    stop: str | None = None
    attachment: tuple[str, bytes] | None = None


def order_email(
    kind: OrderKind, show: ShowInfo, reference: str, *, currency: str, amount_minor: int, link: str,
    attachment: tuple[str, bytes] | None = None,
) -> EmailContent:  # fmt: skip
    """About an order: it was confirmed, or money of it went back."""
    amount, show_line = money(amount_minor, currency), ", ".join(filter(None, (show.name, show.when, show.venue)))
    back = f"{amount} went back the way it was paid. How long it takes to arrive depends on the bank."
    subject, paragraphs = {
        "confirmed": (f"Your tickets: {show.name}", (f"You are going: {show_line}.", f"Paid: {amount}.", PROOF)),
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


def hold_email(kind: HoldKind, show: ShowInfo, *, link: str, stop: str) -> EmailContent:
    """About held tickets, for who asked to be reminded."""
    subject, words = {
        "remind": (
            f"Your tickets are held for a few more minutes: {show.name}",
            "You have not paid yet. After that, others may have them.",
        ),
        "hold_over": (f"Your hold has ended: {show.name}", "Your tickets went back on sale. You may choose again."),
    }[kind]
    return EmailContent(subject=subject, paragraphs=(words,), label=show.name, link=link, stop=stop)


def message(letter: EmailContent, *, sender: Address, to: str, message_id: str, at: datetime) -> EmailMessage:
    """As it travels; the same letter gives the same `Message-ID`. Raises `NoMailbox`."""
    mail = EmailMessage(policy=WIRE)
    mail["From"] = sender
    mail["To"] = mailbox(to)
    mail["Subject"] = one_line(letter.subject)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = message_id
    mail["Auto-Submitted"] = "auto-generated"
    if letter.stop is not None:
        mail["List-Unsubscribe"] = f"<{letter.stop}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    mail.set_content(plain(letter))
    mail.add_alternative(html(letter), subtype="html")
    if letter.attachment is not None:
        name, content = letter.attachment
        mail.add_attachment(content, maintype="application", subtype="pdf", filename=name)
    return mail


def one_line(text: str) -> str:
    """Without anything that could end a header."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:SUBJECT_MAX_CHARS]


def plain(letter: EmailContent) -> str:
    """The letter as text."""
    stop = (f"\nNo more reminders: {letter.stop}",) if letter.stop else ()
    return (
        "\n\n".join((*map(one_line, letter.paragraphs), f"{one_line(letter.label)}: {letter.link}"))
        + "\n".join(stop)
        + "\n"
    )


def html(letter: EmailContent) -> str:
    """The same for who prefers it; nothing is loaded from anywhere."""
    words = "".join(f"<p>{escape(one_line(words))}</p>" for words in letter.paragraphs)
    link = f'<p><a href="{escape(letter.link)}">{escape(one_line(letter.label))}</a></p>'
    stop = f'<p><small><a href="{escape(letter.stop)}">No more reminders</a></small></p>' if letter.stop else ""
    return f'<!doctype html><html lang="en"><body>{words}{link}{stop}</body></html>'
