"""Without scripts the pages say in words what places are: for a wheelchair, for a companion, and so on."""

import re
from typing import Any

import pytest

from features.pages.contracts import ReadSeats
from features.pages.gateway.documents import EventPages, rendered
from features.pages.gateway.own import OwnView
from features.pages.gateway.plain_pages import FanPages
from features.pages.gateway.stock import EventStock, SeatTables
from features.pages.tests.shop import Shop
from shared.contracts.catalogue import SeatPage, SeatView
from shared.words.words import words

SECTION = {
    "type": "std", "capacity": 4, "price_minor": 100, "regular_price_minor": 100, "currency": "EUR", "price_levels": [],
}  # fmt: skip
SEATED = {"section_id": "A", "name": "A", "kind": "seated", "rows": 2, "seats_per_row": 2, **SECTION}
STANDING = {"section_id": "GA", "name": "Floor", "kind": "ga", "rows": None, "seats_per_row": None, **SECTION}
SECTIONS = [SEATED | {"traits": ["companion", "wheelchair"]}, STANDING | {"traits": ["easy_access"]}]
TRAITS = {"A-1-1": ["easy_access", "wheelchair"], "A-1-2": ["easy_access"]}


class SeatShop(Shop):
    """A shop whose section A has four seats."""

    async def section_seats(self, question: ReadSeats) -> SeatPage:
        seats = [
            SeatView(
                seat_id=f"A-{row}-{n}", row=str(row), label=str(n), number=n, status="available", price_minor=100,
                traits=TRAITS.get(f"A-{row}-{n}", []),
            )
            for row in (1, 2) for n in (1, 2)
        ]  # fmt: skip
        return SeatPage(section_id="A", total_seats=4, page=1, page_size=500, seats=seats)


@pytest.fixture
async def events(pages: FanPages, shop: Shop) -> EventPages:
    await pages.gateway.line_cache.line("show")
    shop.more = {"sections": SECTIONS}
    return pages.events


def texts_of(html: str, tag: str) -> list[str]:
    found = re.findall(rf"<{tag}\b.*?</{tag}>", html, re.S)
    return [" ".join(re.sub(r"<[^>]*>", " ", each).split()) for each in found]


async def test_the_list_of_sections_says_what_places_are(events: EventPages) -> None:
    html = (await events.page("show", "en", may_have_place=False)).body.decode()
    assert re.findall(r'<p class="small traits">(.*?)</p>', html) == ["Wheelchair places, Companion places", "No steps"]


async def view(seat_plan: bool) -> dict[str, Any]:
    text, shop = words("en"), SeatShop()
    shop.more, shop.left = {"sections": SECTIONS}, 4
    page = await shop.event_page("show")
    assert page.event is not None
    assert page.availability is not None
    stock = EventStock(page.event, page.availability)
    tables = SeatTables(shop)  # type: ignore[arg-type]
    plan = await tables.plan(text, stock, {"section": "A"} if seat_plan else {})
    await tables.close()
    return {"view": OwnView("show", "choosing", sections=stock.rows(text), seats=plan, limit=2)}


async def test_who_chooses_reads_them_beside_each_section() -> None:
    html = rendered("own.html", "en", **await view(seat_plan=False))
    assert "· Wheelchair places, Companion places" in texts_of(html, "li")[0]
    assert any("· No steps" in each for each in texts_of(html, "label"))


async def test_a_row_says_what_all_its_seats_are_and_a_seat_what_it_is_besides() -> None:
    html = rendered("own.html", "en", **await view(seat_plan=True))
    first, second = texts_of(html, "th")
    assert (first.endswith("no steps"), "steps" in second) == (True, False)
    seats = texts_of(html, "td")
    assert seats == ["1, wheelchair place , available 2 , available", "1 , available 2 , available"]
