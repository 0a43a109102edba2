"""The list of events: complete in the first HTML, in the reader's language, page after page."""

import re

import httpx
import pytest

from services.gateway.state import State
from tests.gateway.shop import Shop
from tests.support.running.queue_service import QueueService


@pytest.fixture
async def shop(state: State, queue: QueueService, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Inventory and orders of the page."""
    await queue.open()
    shop = Shop()
    for name in ("_inventory", "_orders"):
        monkeypatch.setattr(state.catalogue_pages, name, shop)
    return shop


def cards(page: httpx.Response) -> list[str]:
    return re.findall(r'<a class="event-card" href="/e/(\w+)">', page.text)


async def test_the_first_html_lists_events_with_state_price_and_time(fan: httpx.AsyncClient, shop: Shop) -> None:
    page = await fan.get("/", headers={"accept-language": "de"})
    assert cards(page) == ["show", "gig"]
    assert "&lt;i&gt;Show&lt;/i&gt;" in page.text
    assert "ab 1,50\xa0€" in page.text, "with everything in it"
    assert "1. Juni 2030, 20:00" in page.text, "on the venue's clock"
    assert 'data-state="open"' in page.text


async def test_more_events_are_a_link_away(fan: httpx.AsyncClient, shop: Shop) -> None:
    [link] = re.findall(r'<a id="more" class="button quiet" href="([^"]+)" >', (await fan.get("/")).text)
    assert link == "/?after=gig"
    last = await fan.get(link)
    assert cards(last) == ["late"]
    assert re.search(r'<a id="more"[^>]* hidden>', last.text)


async def test_a_page_is_rendered_once_in_some_seconds_however_many_open_it(fan: httpx.AsyncClient, shop: Shop) -> None:
    for _ in range(5):
        await fan.get("/")
    asked = shop.asked
    await fan.get("/?after=../%3Cb%3E")
    assert shop.asked == asked, "what is no event names no page of its own"


async def test_without_inventory_the_page_says_that_it_loads(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.away = True
    page = await fan.get("/")
    assert (page.status_code, cards(page)) == (200, [])
    assert re.search(r'<p id="loading" class="loading" >', page.text)
