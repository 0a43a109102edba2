"""An order's papers: its tickets and its receipt as PDF, for their holder, rendered once, and limited; its calendar
file.
"""

import asyncio
import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pypdf import PdfReader

from features.papers.orders import api, pdf
from features.papers.orders.pdf import PdfRenderer, TicketPage, receipt_content
from services.orders.model.order import Order, ticket_id
from services.orders.tickets.bill import order_bill
from shared.contracts.inventory import ReservedItem
from shared.contracts.prices import PriceRules
from shared.errors.problems import Overloaded
from shared.security.tokens import order_cookie, sign_order_token
from shared.words.words import LANGUAGES, words
from tests.orders.checkout.test_names import NAMES, ids_of, rename
from tests.orders.checkout.test_names import bought as bought_with_names
from tests.orders.delivery.test_bill import RECEIPT_OF_TRIAL, order_of
from tests.orders.delivery.test_bill import SHOW as SHOW_OF_BILL
from tests.orders.delivery.test_tickets import SHOW, apply_event_file, bought, get
from tests.orders.inventory import EVENT
from tests.orders.priced_event import open_sale
from tests.orders.shop import ROOT
from tests.support.running.suite import problem
from tests.support.wait import wait_until


def pdf_pages(content: bytes) -> list[str]:
    """The text of each page."""
    return [page.extract_text() for page in PdfReader(io.BytesIO(content)).pages]


async def test_an_order_that_is_not_confirmed_has_neither_tickets_nor_receipt(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    for document, slug in (("tickets", "no-tickets"), ("receipt", "no-receipt")):
        answer = await get(shop, f"/orders/{reference}/{document}.pdf")
        assert problem(answer) == (409, slug)


async def test_a_refunded_order_has_no_tickets_to_print(shop):
    refunded = await bought(shop)
    assert (await shop.admin_post(f"{refunded}/refund")).is_success
    await shop.wait_until_settled(refunded, "refunded")
    assert (await get(shop, f"/orders/{refunded}/tickets.pdf")).json()["type"] == "/problems/no-tickets"


async def test_tickets_and_receipt_are_rendered_as_pdf(shop):
    await apply_event_file(shop)
    reference = await bought(shop)
    answer = await get(shop, f"/orders/{reference}/tickets.pdf")
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/pdf", "private, no-cache")
    pages = pdf_pages(answer.content)
    assert len(pages) == 3
    for text in (SHOW["name"], "4 May 2030, 20:00", "Big Hall", "Block A, row 1, seat 2", ticket_id(reference, 1, 1)):
        assert text in pages[0].replace("\n", " ")
    [receipt, *_] = pdf_pages((await get(shop, f"/orders/{reference}/receipt.pdf")).content)
    for text in (reference, "2 × Floor", "€28.00", "€68.00", "by sandbox", "Ada"):
        assert text in receipt


async def test_each_ticket_has_its_name_also_after_a_change(shop):
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought_with_names(sale, [*NAMES[:2], "Bob"])
    path = f"/orders/{reference}/tickets.pdf"
    key = {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, reference)}"}
    before = await shop.http.get(path, headers=key)
    assert [[name for name in (*NAMES[:2], "Bob") if name in page] for page in pdf_pages(before.content)] == [
        ["Ada Lovelace"], ["Grace Hopper"], ["Bob"]
    ]  # fmt: skip
    [_, second, _] = await ids_of(sale, reference)
    await rename(sale, reference, names={second: "Mary Jackson"})
    after = await shop.http.get(path, headers=key)
    assert after.headers["etag"] != before.headers["etag"]
    changed = pdf_pages(after.content)[1]
    assert ("Mary Jackson" in changed, "Grace" in changed, second in changed) == (True, False, True)


async def test_all_tickets_have_the_one_name_of_an_order(shop):
    sale = await open_sale(shop, sales={"names": "order"})
    reference = await bought_with_names(sale)
    await rename(sale, reference, name="Grace Hopper")
    key = {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, reference)}"}
    pages = pdf_pages((await shop.http.get(f"/orders/{reference}/tickets.pdf", headers=key)).content)
    assert ["Grace Hopper" in page for page in pages] == [True] * 3


async def test_papers_need_the_holder_or_the_order_token_that_a_mail_carries(shop):
    reference = await bought(shop)
    token = sign_order_token(shop.settings.order_token_keys, reference)
    shop.http.cookies.clear()
    for path in (f"/orders/{reference}/{part}.pdf" for part in ("tickets", "receipt")):
        assert (await shop.http.get(path)).status_code == 401
        assert (await get(shop, path, holder="somebody")).status_code == 404
        cookie = {"cookie": f"{order_cookie(reference)}={token}"}
        assert (await shop.http.get(path, headers=cookie)).status_code == 200


async def test_rotating_codes_are_not_printed(processes):
    shop = await processes.open(ticket_window_s=30)
    reference = await bought(shop)
    pages = pdf_pages((await get(shop, f"/orders/{reference}/tickets.pdf")).content)
    assert "show the order page" in pages[0].replace("\n", " ")


async def test_a_busy_renderer_refuses_further_requests():
    renderer = PdfRenderer(workers=1, waiting_max=1, font=None)
    page = TicketPage("en", "漢字 " + "x" * 500, "when", "venue", "place", "REFERENCE123", "TICKET", "T1.code")
    try:
        tasks = [asyncio.create_task(renderer.tickets([page] * n)) for n in (20, 21)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await renderer.tickets([page])
        assert [len(PdfReader(io.BytesIO(await task)).pages) for task in tasks] == [20, 21]
        assert await renderer.tickets([page])
    finally:
        renderer.close()


async def test_a_pdf_is_rendered_once_for_concurrent_requests(monkeypatch):
    rendered: list[str] = []

    def render(size: Any, language: str, title: str, pages: Any) -> bytes:
        rendered.append(title)
        return b"x" * 400

    monkeypatch.setattr(pdf, "_document", render)
    renderer = PdfRenderer(workers=2, waiting_max=1, font=None)
    page = TicketPage("en", "Show", "when", "venue", "place", "REFERENCE123", "TICKET", "code")
    try:
        documents = await asyncio.gather(*(renderer.tickets([page]) for _ in range(50)))
        assert (len(set(documents)), len(rendered)) == (1, 1)
    finally:
        renderer.close()


async def test_pdf_requests_of_an_order_are_limited_and_answered_304_if_unchanged(processes, monkeypatch):
    monkeypatch.setattr(api, "PRINTS_BURST", 3)
    monkeypatch.setattr(api, "PRINTS_PER_MINUTE", 1)
    shop = await processes.open()
    reference, other = await bought(shop), await bought(shop, "A-1-3")
    path = f"/orders/{reference}/tickets.pdf"
    first = await get(shop, path)
    again = await get(shop, path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    statuses = [(await get(shop, path)).status_code for _ in range(5)]
    assert statuses == [200, 200, 429, 429, 429]
    assert 0 < int((await get(shop, path)).headers["retry-after"]) <= 60
    assert (await get(shop, f"/orders/{other}/tickets.pdf")).status_code == 200, "each order has its own limit"
    assert (await get(shop, f"/orders/{reference}/tickets")).status_code == 200, "the codes are not limited"


async def test_letters_that_no_paper_shows_are_named_when_the_event_is_applied(processes):
    """And not where nothing is printed."""
    file = {**SHOW, "name": "ខ្មែរ", "rehearsal": False}
    for off, count in ((frozenset(), 1), (frozenset({"papers"}), 0)):
        shop = await processes.open(features_off=off)
        answer = await shop.http.put(f"/admin/orders/events/{EVENT}", json=file, headers=ROOT)
        assert answer.status_code == 200, answer.text
        warnings = answer.json()["warnings"]
        assert len(warnings) == count
        assert all("cannot show" in warning for warning in warnings)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_receipt_shows_every_amount_of_the_bill(language: str) -> None:
    order = replace(order_of(*RECEIPT_OF_TRIAL, back_minor=4100), language=language)
    text, bill = words(language), order_bill(order, SHOW_OF_BILL, words(language))
    page = await receipt_text(order)
    for _, amount in (row for part in bill.written(text, "EUR") for row in part):
        digits = "".join(sign for sign in amount if sign.isdigit() or sign in ".,")
        assert digits in page, "the sign of the currency is where the language has it"
    assert "TENOFF" in page


async def test_a_receipt_of_nothing_to_pay_says_so() -> None:
    page = await receipt_text(order_of([ReservedItem(section_id="A", unit_price_minor=0)], PriceRules(), None))
    assert page.count("€0.00") == 2


async def receipt_text(order: Order) -> str:
    renderer = PdfRenderer(workers=1, waiting_max=1, font=None)
    try:
        async with asyncio.timeout(30):
            document = await renderer.receipt(receipt_content(order, SHOW_OF_BILL, seller="Onsale Ltd"))
    finally:
        renderer.close()
    return _plain("\n".join(page.extract_text() for page in PdfReader(io.BytesIO(document)).pages))


def _plain(text: str) -> str:
    """Without the marks of direction and the kinds of space that a PDF's text loses."""
    return "".join(sign for sign in text if not sign.isspace() and sign.isprintable())


async def test_the_show_of_an_order_is_a_calendar_file_in_its_language(shop):
    await apply_event_file(shop, name="Nacht; Licht, und\nSchatten " * 4, timezone="Europe/Berlin")
    body = shop.body(await shop.inventory.hold()) | {"language": "de"}
    reference = (await shop.post(body)).json()["reference"]
    file = await get(shop, f"/orders/{reference}/event.ics")
    assert file.headers["content-type"].startswith("text/calendar")
    lines = file.content.split(b"\r\n")
    assert max(map(len, lines)) <= 75
    text = file.content.replace(b"\r\n ", b"").decode()
    assert "DTSTART;TZID=Europe/Berlin:20300504T200000" in text
    assert "SUMMARY;LANGUAGE=de:Nacht\\; Licht\\, und\\nSchatten" in text
    assert f"DESCRIPTION;LANGUAGE=de:Bestellung {reference}." in text
    assert f"URL:https://shop.test/o/{reference}" in text or f"/o/{reference}" in text
    made = next(line for line in text.splitlines() if line.startswith("DTSTAMP:")).removeprefix("DTSTAMP:")
    age = datetime.now(UTC) - datetime.strptime(made, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs(age.total_seconds()) < 600
    shop.http.cookies.clear()
    assert (await shop.http.get(f"/orders/{reference}/event.ics")).status_code == 401
    assert (await get(shop, f"/orders/{reference}/event.ics", holder="somebody")).status_code == 404


async def test_the_calendar_file_has_the_end_and_the_seats_that_are_still_good(shop):
    await apply_event_file(shop, ends_at="2030-05-05T02:30:00+02:00", timezone="Europe/Berlin")
    reference = await bought(shop)
    text = (await get(shop, f"/orders/{reference}/event.ics")).text.replace("\r\n ", "")
    assert "DTEND;TZID=Europe/Berlin:20300505T023000\r\n" in text
    assert rf"DESCRIPTION;LANGUAGE=en:Order {reference}.\nBlock A\, row 1\, seat 2\n2 × Floor" in text
    assert (await shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-2"]}, key="k")).is_success
    await shop.wait_for_status(reference, "partially_refunded")
    text = (await get(shop, f"/orders/{reference}/event.ics")).text.replace("\r\n ", "")
    assert rf"Order {reference}.\n2 × Floor" in text


async def test_an_event_without_a_time_has_no_calendar_file(shop):
    reference = await shop.order()
    assert (await get(shop, f"/orders/{reference}/event.ics")).status_code == 404
