"""What stands in a letter stays where it belongs: nothing ends a header, nothing becomes HTML."""

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default

import pytest
from pydantic import ValidationError

from services.orders.mail.templates import EmailContent, build_message, hold_email, order_email
from services.orders.mail_settings import parse_sender, server_of
from services.orders.settings import Settings
from services.orders.tickets.money import format_money
from services.orders.tickets.show import ShowInfo

SENDER = parse_sender("Onsale <tickets@example.org>")
SHOW = ShowInfo("e", 'Rock\r\nBcc: everybody@example.org\n\n<script>alert("x")</script>', "A hall\x00\u2028", None)


def sent(letter: EmailContent, to: str = "ada@example.org"):
    mail = build_message(
        letter, sender=SENDER, to=to, message_id="<1@example.org>", at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    return message_from_bytes(mail.as_bytes(), policy=default)


def test_what_a_machine_reads_in_a_header_is_in_one_piece():
    stop = f"https://tickets.example.org/reminders/stop/{'c' * 43}.k1.{'m' * 43}"
    letter = hold_email("hold_over", ShowInfo("e", "Räuber " * 20), link="https://x/", unsubscribe_url=stop)
    message_id = f"<{'1' * 40}@{'a-long-name.' * 5}example.org>"
    mail = build_message(
        letter, sender=SENDER, to="a@b.org", message_id=message_id, at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    lines = mail.as_bytes().split(b"\r\n")
    assert f"List-Unsubscribe: <{stop}>".encode() in lines
    assert f"Message-ID: {message_id}".encode() in lines
    assert max(map(len, lines)) < 998


def test_a_name_with_line_breaks_and_markup_is_a_name():
    letters = [
        order_email("confirmed", SHOW, "REF", currency="EUR", amount_minor=100, link="https://x/?a=1&b=2"),
        hold_email("remind", SHOW, link="https://x/", unsubscribe_url="https://x/stop"),
    ]
    for read in map(sent, letters):
        assert set(read.keys()) - {"List-Unsubscribe", "List-Unsubscribe-Post"} == {
            "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"
        }  # fmt: skip
        assert "Bcc: everybody@example.org" in read["Subject"]
        html = read.get_body(("html",)).get_content()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert "a=1&amp;b=2" in sent(letters[0]).get_body(("html",)).get_content()


@pytest.mark.parametrize(
    "to", ["a@b\r\nBcc: c@d", "a@b, c@d", "<a@b>", "a b@c", "a@b c", "@b", "a@", "ü\n@b", "a,b@c", "a@b>c", "ü@b.c"]
)
def test_an_address_is_one_mailbox_or_none(to):
    letter = order_email("refunded", ShowInfo("e", "Rock"), "REF", currency="EUR", amount_minor=100, link="https://x")
    with pytest.raises(ValueError, match="not one mailbox"):
        sent(letter, to)


def test_a_host_of_any_alphabet_is_reached():
    letter = order_email("refunded", ShowInfo("e", "Rock"), "REF", currency="EUR", amount_minor=100, link="https://x")
    assert sent(letter, "ada@bücher.example")["To"] == "ada@xn--bcher-kva.example"


def test_a_wrong_server_or_sender_stops_the_boot_and_tells_no_password():
    assert server_of("smtps://u%40x:p%3A@host").user == "u@x"
    assert (server_of("smtp://host").port, server_of("smtps://host").port) == (587, 465)
    for wrong in ("http://u:secret@host", "smtp://", "smtp://u:secret@host:no", "smtp://u:secret@host/path"):
        with pytest.raises(ValidationError) as refused:
            Settings(smtp_url=wrong)
        assert "secret" not in str(refused.value)
    for wrong in ("nobody", "A\r\nBcc: x@y <a@b>", ""):
        with pytest.raises(ValidationError):
            Settings(mail_from=wrong)


@pytest.mark.parametrize(
    ("minor", "currency", "said"),
    [
        (123_450, "EUR", "EUR 1,234.50"), (5, "EUR", "EUR 0.05"), (-100, "USD", "USD -1.00"),
        (1200, "JPY", "JPY 1,200"), (1200, "KWD", "KWD 1.200"),
    ],
)  # fmt: skip
def test_money_has_the_digits_of_its_currency(minor, currency, said):
    assert format_money(minor, currency) == said
