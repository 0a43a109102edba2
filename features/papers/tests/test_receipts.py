"""The bill on receipts."""

import asyncio
import io
from dataclasses import replace

import pytest
from pypdf import PdfReader

from features.papers.orders.pdf import PdfRenderer, receipt_content
from services.orders.model.order import Order
from services.orders.tickets.bill import order_bill
from shared.contracts.inventory import ReservedItem
from shared.contracts.prices import PriceRules
from shared.words.words import LANGUAGES, words
from tests.orders.delivery.test_bill import RECEIPT_OF_TRIAL, SHOW, order_of


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_receipt_shows_every_amount_of_the_bill(language: str) -> None:
    order = replace(order_of(*RECEIPT_OF_TRIAL, back_minor=4100), language=language)
    text, bill = words(language), order_bill(order, SHOW, words(language))
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
            document = await renderer.receipt(receipt_content(order, SHOW, seller="Onsale Ltd"))
    finally:
        renderer.close()
    return _plain("\n".join(page.extract_text() for page in PdfReader(io.BytesIO(document)).pages))


def _plain(text: str) -> str:
    """Without the marks of direction and the kinds of space that a PDF's text loses."""
    return "".join(sign for sign in text if not sign.isspace() and sign.isprintable())
