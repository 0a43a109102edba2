"""An event's page brings the answers that its script would ask for, the list of events is complete in the first HTML;
they come with less rather than late.
"""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from features.pages.gateway.documents import EventPages
from features.pages.gateway.plain_pages import FanPages
from features.pages.tests.shop import Shop
from shared.errors.problems import Overloaded, UnknownEvent

PATH = "/events/show"


@pytest.fixture
async def events(pages: FanPages, shop: Shop) -> EventPages:
    await pages.gateway.line_cache.line("show")
    return pages.events


async def html(events: EventPages, language: str = "en", *, may_have_place: bool = True) -> str:
    document = await events.page("show", language, may_have_place=may_have_place)
    return document.body.decode()


def facts(text: str) -> dict[str, Any]:
    [found] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text)
    brought: dict[str, Any] = json.loads(found)
    return brought


async def test_the_page_brings_what_its_script_would_ask_first(events: EventPages) -> None:
    text = await html(events)
    brought = facts(text)
    assert set(brought) == {PATH, f"{PATH}/queue", f"{PATH}/sections", "/orders/events/show/prices?each=100&each=300"}
    assert brought["/orders/events/show/prices?each=100&each=300"]["all_in"] == {"100": 150, "300": 350}
    assert brought[f"{PATH}/queue"]["state"] == "open"
    assert "&lt;i&gt;Show&lt;/i&gt;" in text
    assert "<i>Show" not in text, "neither in the page nor in the facts"
    assert "Sat, 1 June 2030" in text


async def test_who_sent_no_token_is_told_that_there_is_no_place(events: EventPages) -> None:
    assert facts(await html(events, may_have_place=False))[f"{PATH}/queue/status"] is None
    assert f"{PATH}/queue/status" not in facts(await html(events, may_have_place=True))


async def test_a_thousand_readers_cost_one_question(events: EventPages, shop: Shop) -> None:
    read = await asyncio.gather(*(events.page("show", "en", may_have_place=False) for _ in range(1000)))
    assert (len(set(map(id, read))), shop.asked) == (1, 1)
    await events.page("show", "de", may_have_place=True)
    assert shop.asked == 1, "nor does another language"


async def test_a_failure_costs_no_page(events: EventPages, shop: Shop) -> None:
    shop.away = True
    assert set(facts(await html(events, "de", may_have_place=True))) == {f"{PATH}/queue"}, "German was not rendered yet"


async def test_pages_of_invented_events_do_not_keep_those_of_a_known_one_away(
    events: EventPages, shop: Shop, monkeypatch
):
    go_on = asyncio.Event()

    async def never_found(event_id: str) -> None:
        await go_on.wait()
        raise UnknownEvent

    with monkeypatch.context() as patched:
        patched.setattr(shop, "event_page", never_found)
        invented = [asyncio.create_task(events.shell(f"no-{n}", "en")) for n in range(100)]
        await asyncio.sleep(0.05)
        assert sum(task.done() and isinstance(task.exception(), Overloaded) for task in invented) > 0
    assert (await events.shell("show", "en")).facts.line is not None
    go_on.set()
    await asyncio.gather(*invented, return_exceptions=True)


# -- the list of events ------------------------------------------------------------------------------------------------


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
