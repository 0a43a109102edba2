"""Mails and papers of an order are in its language: that of the page that ordered, or the one that the client names."""

import uuid

import pytest

from shared.words.words import LANGUAGES, words
from tests.orders.delivery.test_tickets import apply_event_file
from tests.orders.mailbox import mail_dispatcher
from tests.orders.shop import Shop, pass_header

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
