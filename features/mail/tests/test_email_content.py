"""The content of mails: names and addresses add no header, no recipient and no HTML."""

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from html import unescape
from typing import Any

import pytest
from pydantic import ValidationError

from features.mail.orders.compose import EmailContent, build_message, hold_email, order_email, single_line
from features.mail.orders.smtp import parse_sender, server_of
from services.orders.model.order import TypeName
from services.orders.settings import Settings
from services.orders.tickets.show import ShowInfo
from shared.rules.currencies import format_money
from shared.web.parts import with_settings_of_parts
from shared.words.words import LANGUAGES, words
from tests.orders.shop import NAMES, WORD_OF_68

SENDER = parse_sender("Onsale <tickets@example.org>")
AT = datetime(2026, 1, 1, tzinfo=UTC)
REFUNDED = order_email(
    "refunded", ShowInfo("e", "Rock"), "REF", text=words("en"), currency="EUR", amount_minor=100, link="https://x"
)
SHOW = ShowInfo("e", 'Rock\r\nBcc: everybody@example.org\n\n<script>alert("x")</script>', "A hall\x00\u2028", None)


def parsed(content: EmailContent, to: str = "ada@example.org"):
    """The mail as its recipient reads it."""
    mail = build_message(content, sender=SENDER, to=to, message_id="<1@example.org>", at=AT)
    return message_from_bytes(mail.as_bytes(), policy=default)


def test_urls_and_ids_in_headers_are_not_folded():
    stop = f"https://tickets.example.org/reminders/stop/{'c' * 43}.k1.{'m' * 43}"
    content = hold_email(
        "hold_over", ShowInfo("e", "Räuber " * 20), text=words("en"), link="https://x/", unsubscribe_url=stop
    )
    message_id = f"<{'1' * 40}@{'a-long-name.' * 5}example.org>"
    mail = build_message(content, sender=SENDER, to="a@b.org", message_id=message_id, at=AT)
    lines = mail.as_bytes().split(b"\r\n")
    assert f"List-Unsubscribe: <{stop}>".encode() in lines
    assert f"Message-ID: {message_id}".encode() in lines
    assert max(map(len, lines)) < 998


def test_an_event_name_adds_no_header_and_no_markup():
    contents = [
        order_email(
            "confirmed", SHOW, "REF", text=words("en"), currency="EUR", amount_minor=100, link="https://x/?a=1&b=2"
        ),
        hold_email("remind", SHOW, text=words("en"), link="https://x/", unsubscribe_url="https://x/stop"),
    ]
    for mail in map(parsed, contents):
        assert set(mail.keys()) - {"List-Unsubscribe", "List-Unsubscribe-Post"} == {
            "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
            "Content-Language",
        }  # fmt: skip
        assert "Bcc: everybody@example.org" in mail["Subject"]
        html = mail.get_body(("html",)).get_content()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert "a=1&amp;b=2" in parsed(contents[0]).get_body(("html",)).get_content()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_confirmation_says_what_is_shown_at_the_door(language):
    text, types = words(language), [TypeName("adult", "Adult"), TypeName("child", "Ch\nild", "A <card>")]
    told: dict[str, Any] = {"currency": "EUR", "amount_minor": 100, "link": "https://x", "types": types}
    confirmed = parsed(order_email("confirmed", ShowInfo("e", "Rock"), "REF", text=text, **told))
    proof = text("mail_proof", type="Ch ild", proof="A <card>")
    assert proof in confirmed.get_body(("plain",)).get_content()
    assert "A &lt;card&gt;" in confirmed.get_body(("html",)).get_content()
    assert "Adult" not in confirmed.get_body(("plain",)).get_content()
    refunded = parsed(order_email("refunded", ShowInfo("e", "Rock"), "REF", text=text, **told))
    assert "<card>" not in refunded.get_body(("plain",)).get_content()


@pytest.mark.parametrize(
    "to", ["a@b\r\nBcc: c@d", "a@b, c@d", "<a@b>", "a b@c", "a@b c", "@b", "a@", "ü\n@b", "a,b@c", "a@b>c", "ü,a@b.c"]
)
def test_a_recipient_is_exactly_one_mailbox(to):
    with pytest.raises(ValueError, match="not one mailbox"):
        parsed(REFUNDED, to)


def test_an_international_domain_is_encoded():
    assert parsed(REFUNDED, "ada@bücher.example")["To"] == "ada@xn--bcher-kva.example"


def test_an_invalid_mail_server_or_sender_is_refused_without_showing_its_password():
    settings = with_settings_of_parts(Settings, "orders")
    assert server_of("smtps://u%40x:p%3A@host")["username"] == "u@x"
    assert (server_of("smtp://host")["port"], server_of("smtps://host")["port"]) == (587, 465)
    for wrong in ("http://u:secret@host", "smtp://", "smtp://u:secret@host:no", "smtp://u:secret@host/path"):
        with pytest.raises(ValidationError) as refused:
            settings(smtp_url=wrong)
        assert "secret" not in str(refused.value)
    for wrong in ("nobody", "A\r\nBcc: x@y <a@b>", ""):
        with pytest.raises(ValidationError):
            settings(mail_from=wrong)


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (123_450, "EUR", "EUR 1,234.50"), (5, "EUR", "EUR 0.05"), (-100, "USD", "USD -1.00"),
        (1200, "JPY", "JPY 1,200"), (1200, "KWD", "KWD 1.200"),
    ],
)  # fmt: skip
def test_money_is_formatted_with_the_decimals_of_its_currency(minor, currency, text):
    assert format_money(minor, currency) == text


@pytest.mark.parametrize("name", [*NAMES.values(), WORD_OF_68, "🎉" * 90, "हिन्दी संगीत समारोह", "漢" * 200], ids=str)
def test_a_mail_keeps_every_name_as_it_was_typed(name):
    show = ShowInfo("e", name, venue=name)
    mail = build_message(
        order_email("confirmed", show, "REF", text=words("en"), currency="EUR", amount_minor=1, link="https://x"),
        sender=SENDER, to="ada@example.org", message_id="<1@example.org>", at=AT,
    )  # fmt: skip
    sent = mail.as_bytes()
    assert max(map(len, sent.split(b"\r\n"))) <= 998
    read = message_from_bytes(sent, policy=default)
    shown = single_line(name)
    assert read["Subject"] == single_line(words("en")("mail_confirmed_subject", name=shown))
    plain, html = (part.get_content() for kind in ("plain", "html") if (part := read.get_body((kind,))))
    assert shown in plain
    assert shown in unescape(html)
