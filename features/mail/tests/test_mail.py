"""Mail about orders: written in the transaction of its cause, sent at least once, and in the language of its order."""

import asyncio
import io
import uuid

import pytest
from pypdf import PdfReader

from shared.security.tokens import read_order_token
from shared.words.words import LANGUAGES, words
from tests.orders.checkout.test_names import bought as bought_with_names
from tests.orders.checkout.test_names import ids_of, rename
from tests.orders.delivery.test_tickets import apply_event_file
from tests.orders.priced_event import PRICE_TYPES, open_sale
from tests.orders.pricing.test_price_types import FLOOR, bought_of
from tests.orders.shop import DROP, Shop, mail_dispatcher, mail_rows, make_mail_due, pass_header, send_due
from tests.support.neighbours import Call
from tests.support.wait import wait_until


async def confirmed(shop: Shop) -> str:
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    return reference


async def write_mails(shop: Shop, n: int) -> None:
    """Writes this number of mails, all about one order."""
    await confirmed(shop)
    await shop.run(
        "INSERT INTO orders.mail (mail_key, kind, address, event_id, reference)"
        " SELECT mail_key || n, kind, address, event_id, reference FROM orders.mail, generate_series(2, :n) AS n",
        n=n,
    )


async def test_a_confirmation_links_the_order_and_contains_no_buyer_input(mail_shop, mailbox):
    reference = await confirmed(mail_shop)
    await mail_dispatcher(mail_shop).run_once()
    [mail] = mailbox.received
    assert mailbox.envelopes == [("tickets@localhost", ["ada@example.org"])]
    assert (mail["From"], mail["To"]) == ("Onsale <tickets@localhost>", "ada@example.org")
    assert mail["Message-ID"].endswith("@localhost>")
    plain, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    link = plain.split("Your order: ")[1].split()[0]
    assert link in html
    page, _, key = link.partition("#key=")
    assert page == f"https://shop.test/o/{reference}"
    assert read_order_token(mail_shop.settings.order_token_keys, key) == reference
    assert "€68.00" in plain
    assert "is your receipt" in plain
    assert not [text for text in (plain, html, mail["Subject"]) if "Ada" in text.replace(key, "")]
    assert mail["List-Unsubscribe"] is None
    await send_due(mail_shop)
    assert mailbox.attempts == 1
    assert (await mail_rows(mail_shop))[f"confirmed:{reference}"] == (0, True, False, "")
    await mail_shop.run("UPDATE orders.mail SET sent_at = NULL")
    await send_due(mail_shop)
    again = mailbox.received[1]
    assert (again["Message-ID"], again["Date"]) == (mail["Message-ID"], mail["Date"]), "a mailbox drops the second"


async def test_a_confirmation_names_the_price_types_of_its_tickets(mail_shop, mailbox):
    sale = await open_sale(mail_shop, price_types=PRICE_TYPES)
    await bought_of(sale, *FLOOR, total_minor=20000)
    await mail_dispatcher(mail_shop).run_once()
    [mail] = mailbox.received
    for kind in ("plain", "html"):
        body = mail.get_body((kind,)).get_content()
        assert [f"x · {name}" in body for name in ("Adult", "Child", "Under 3")] == [True, True, False]
        assert "A pupil" in body


async def test_a_mail_that_fails_temporarily_is_retried_after_a_pause(mail_shop, mailbox):
    reference = await confirmed(mail_shop)
    mailbox.replies = ["451 not now"]
    await mail_dispatcher(mail_shop).run_once()
    tries, sent, abandoned, error = (await mail_rows(mail_shop))[f"confirmed:{reference}"]
    assert (tries, sent, abandoned, "451" in error) == (1, False, False, True)
    await mail_dispatcher(mail_shop).run_once()
    assert mailbox.attempts == 1, "the pause is not over"
    mailbox.replies = [DROP]
    await send_due(mail_shop)
    await send_due(mail_shop)
    assert (mailbox.attempts, len(mailbox.received)) == (3, 1)
    assert (await mail_rows(mail_shop))[f"confirmed:{reference}"] == (2, True, False, "")


async def test_a_mail_that_is_refused_permanently_is_abandoned(mail_shop, mailbox):
    reference = await confirmed(mail_shop)
    mailbox.rejected = {"ada@example.org": "550 nobody of this name"}
    for _ in range(2):
        await send_due(mail_shop)
    assert mailbox.attempts == 0
    tries, sent, abandoned, error = (await mail_rows(mail_shop))[f"confirmed:{reference}"]
    assert (tries, sent, abandoned, "nobody of this name" in error) == (0, False, True, True)


async def test_a_dropped_connection_counts_as_a_try_of_one_mail_only(mail_shop, mailbox):
    await write_mails(mail_shop, 3)
    mailbox.replies = [None, DROP]
    await mail_dispatcher(mail_shop).run_once()
    assert len(mailbox.received) == 2
    rows = sorted((await mail_rows(mail_shop)).values())
    assert rows[:2] == [(0, True, False, "")] * 2
    assert rows[2][:3] == (1, False, False)


async def test_mail_waits_for_an_unreachable_server_and_is_abandoned_after_a_day(mail_shop, mailbox):
    unreachable = mail_dispatcher(mail_shop, "smtp://127.0.0.1:9")
    await write_mails(mail_shop, 2)
    await unreachable.run_once()
    assert {row[:3] for row in (await mail_rows(mail_shop)).values()} == {(1, False, False)}
    await make_mail_due(mail_shop)
    await mail_shop.run(
        "UPDATE orders.mail SET created_at = now() - interval '25 hours'"
        " WHERE mail_key = (SELECT min(mail_key) FROM orders.mail)"
    )
    await unreachable.run_once()
    assert sorted(row[:3] for row in (await mail_rows(mail_shop)).values()) == [(1, False, True), (2, False, False)]
    await send_due(mail_shop)
    assert len(mailbox.received) == 1


async def test_two_dispatchers_send_each_mail_once_and_keep_the_rate(mail_shop, mailbox):
    await write_mails(mail_shop, 7)
    resume = asyncio.Event()

    async def pause_the_first() -> None:
        if mailbox.attempts == 1:
            await resume.wait()

    mailbox.pause = pause_the_first
    first = asyncio.create_task(mail_dispatcher(mail_shop).run_once())
    await wait_until(lambda: mailbox.attempts == 1)
    await mail_dispatcher(mail_shop).run_once()
    resume.set()
    await first
    assert (mailbox.attempts, len(mailbox.received)) == (7, 7)
    mailbox.pause = None
    await mail_shop.run("UPDATE orders.mail SET sent_at = NULL, due_at = now()")
    await mail_dispatcher(mail_shop).run_once()
    assert mailbox.attempts == 7 + 5


async def test_refunds_of_a_sale_and_of_late_money_are_mailed(mail_shop, mailbox):
    reference = await confirmed(mail_shop)
    assert (await mail_shop.admin_post(f"{reference}/refund")).is_success
    await mail_shop.wait_until_settled(reference, "refunded")
    late = await mail_shop.order(method="success_after_cancel")
    await wait_until(lambda: mail_shop.attempt_is(late, "processing"))
    inventory, reservation_id = mail_shop.inventory, (await mail_shop.row(late)).reservation_id

    async def sell_first(call: Call) -> None:
        if call.path == "/reservations/reacquire":
            inventory.neighbour.on_call = None
            await inventory.sell_to_another(reservation_id)

    inventory.neighbour.on_call = sell_first
    await mail_shop.expire(late)
    await mail_shop.wait_until_settled(late, "refunded")
    await mail_dispatcher(mail_shop).run_once()
    texts = {mail["Subject"].split(":")[0]: mail.get_body(("plain",)).get_content() for mail in mailbox.received}
    assert set(texts) == {"Refunded", "Not booked, and refunded"}, "and no confirmation of a refunded order"
    assert all("€68.00 went back" in text for text in texts.values())


@pytest.mark.parametrize(("off", "pages"), [(set(), [1]), ({"papers"}, [])])
async def test_tickets_are_attached_if_the_operator_wants_it_and_papers_are_printed(
    processes, mailbox, monkeypatch, off, pages
):
    monkeypatch.setattr("features.mail.orders.MAIL_INTERVAL_S", 0.05)
    shop = await processes.open(smtp_url=mailbox.url, mail_tickets=True, features_off=frozenset(off))
    await confirmed(shop)
    await wait_until(lambda: mailbox.received)
    attached = [part.get_content() for part in mailbox.received[0].iter_attachments()]
    assert [len(PdfReader(io.BytesIO(paper)).pages) for paper in attached] == pages


async def test_names_on_tickets_are_in_the_attached_tickets_alone(processes, mailbox):
    """Anybody can have a mail sent to anybody: it says nothing that was typed."""
    shop = await processes.open(smtp_url=mailbox.url, mail_tickets=True)
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought_with_names(sale, ["Visit", "evil", "example"])
    [first, *_] = await ids_of(sale, reference)
    await rename(sale, reference, names={first: "Grace Hopper"})
    await send_due(shop)
    [mail] = mailbox.received
    bodies = "".join(mail.get_body(preferencelist=(kind,)).get_content() for kind in ("plain", "html"))
    assert not [name for name in ("Visit", "Hopper") if name in bodies]
    [paper] = [part.get_content() for part in mail.iter_attachments()]
    pages = [page.extract_text() for page in PdfReader(io.BytesIO(paper)).pages]
    assert ["Hopper" in pages[0], "Visit" in pages[0], "evil" in pages[1]] == [True, False, True]


async def test_without_a_mail_server_no_mail_is_written(shop):
    await confirmed(shop)
    assert await mail_rows(shop) == {}


async def test_an_order_is_sold_without_the_feature(processes, mailbox):
    shop = await processes.open(smtp_url=mailbox.url, features_off=frozenset({"mail"}), webhooks=True)
    await confirmed(shop)
    assert await mail_rows(shop) == {}
    assert (await shop.http.post("/reminders", json={})).status_code == 404


OTHERS = [language for language in LANGUAGES if language != "en"]
GERMAN_SETTINGS = {"accept-language": "de-AT, en;q=0.5"}


async def order(shop: Shop, *, language: str | None = None, query: str = "", headers: dict[str, str] | None = None):
    body = shop.body(await shop.inventory.hold()) | ({"language": language} if language else {})
    sent = pass_header() | {"idempotency-key": uuid.uuid4().hex} | (headers or {})
    return await shop.http.post(f"/orders{query}", json=body, headers=sent)


async def language_of(shop: Shop, **asked) -> str:
    answer = await order(shop, **asked)
    assert answer.status_code == 202, answer.text
    return (await shop.view(answer.json()["reference"]))["language"]


async def test_an_order_keeps_the_language_of_the_page_that_ordered(shop):
    assert await language_of(shop) == "en"
    assert await language_of(shop, headers=GERMAN_SETTINGS) == "de"
    cookie = GERMAN_SETTINGS | {"cookie": "onsale_lang=fr"}
    assert await language_of(shop, headers=cookie) == "fr"
    assert await language_of(shop, headers=cookie, query="?lang=es") == "es"
    assert await language_of(shop, headers=cookie, query="?lang=es", language="ar") == "ar"


@pytest.mark.parametrize("unknown", ["xx", "", "de-AT", "DE"])
async def test_an_order_in_an_unknown_language_is_refused(shop, unknown):
    body = shop.body(await shop.inventory.hold()) | {"language": unknown}
    refused = await shop.post(body)
    assert refused.status_code == 422
    assert "language" in refused.json()["detail"]


@pytest.mark.parametrize("language", OTHERS)
async def test_a_confirmation_is_in_the_language_of_its_order(mail_shop, mailbox, language):
    text = words(language)
    await apply_event_file(mail_shop, name="Nordlicht", timezone="Europe/Berlin")
    reference = (await order(mail_shop, language=language)).json()["reference"]
    await mail_shop.wait_until_settled(reference, "confirmed")
    await mail_dispatcher(mail_shop).run_once()
    [mail] = mailbox.received
    assert mail["Content-Language"] == language
    assert mail["Subject"] == text("mail_confirmed_subject", name="Nordlicht")
    plain, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    assert html.startswith(f'<!doctype html><html lang="{language}" dir="{text.direction}">')
    for told in (text("mail_keep"), text("mail_paid", amount=text.money(6800, "EUR")), text("your_order")):
        assert told in plain
        assert told in html
