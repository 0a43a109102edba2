"""An event's page brings the answers that its script would ask for; it comes with less rather than late."""

import asyncio
import json
import re
from typing import Any

import pytest

from services.gateway.documents import EventPages
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from tests.gateway.shop import Shop
from tests.support.running.queue_service import QueueService

PATH = "/events/show"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def pages(state: Any, queue: QueueService, settings: Settings, shop: Shop) -> EventPages:
    await queue.open()
    lines: LineCache = state.line_cache
    await lines.line("show")
    return EventPages(lines, shop, shop, settings.public_url)  # type: ignore[arg-type] # it answers as both


async def html(pages: EventPages, language: str = "en", *, may_have_place: bool = True) -> str:
    document = await pages.page("show", language, may_have_place=may_have_place)
    return document.body.decode()


def facts(text: str) -> dict[str, Any]:
    [found] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text)
    brought: dict[str, Any] = json.loads(found)
    return brought


async def test_the_page_brings_what_its_script_would_ask_first(pages: EventPages) -> None:
    text = await html(pages)
    brought = facts(text)
    assert set(brought) == {PATH, f"{PATH}/queue", f"{PATH}/sections", "/orders/events/show/prices?each=100&each=300"}
    assert brought["/orders/events/show/prices?each=100&each=300"]["all_in"] == {"100": 150, "300": 350}
    assert brought[f"{PATH}/queue"]["state"] == "open"
    assert "&lt;i&gt;Show&lt;/i&gt;" in text
    assert "<i>Show" not in text, "neither in the page nor in the facts"
    assert "Sat, 1 June 2030" in text


async def test_who_sent_no_token_is_told_that_there_is_no_place(pages: EventPages) -> None:
    assert facts(await html(pages, may_have_place=False))[f"{PATH}/queue/status"] is None
    assert f"{PATH}/queue/status" not in facts(await html(pages, may_have_place=True))


async def test_a_thousand_readers_cost_one_question(pages: EventPages, shop: Shop) -> None:
    read = await asyncio.gather(*(pages.page("show", "en", may_have_place=False) for _ in range(1000)))
    assert (len(set(map(id, read))), shop.asked) == (1, 1)
    await pages.page("show", "de", may_have_place=True)
    assert shop.asked == 1, "nor does another language"


async def test_a_failure_costs_no_page(pages: EventPages, shop: Shop) -> None:
    shop.away = True
    assert set(facts(await html(pages, "de", may_have_place=True))) == {f"{PATH}/queue"}, "German was not rendered yet"
