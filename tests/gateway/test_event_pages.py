"""An event's page brings the answers that its script would ask for; it comes with less rather than late."""

import asyncio
import json
import re
from typing import Any

import pytest

from services.gateway.documents import EventPages
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from shared.contracts.catalogue import EventDetails, EventPageFacts, SectionList
from shared.contracts.prices import PricesAnswer
from shared.web.problems import Unavailable
from tests.gateway.fake_queue import FakeQueue

PATH = "/events/show"


class Shop:
    """Inventory and orders; they count questions, and answer nothing while `away`."""

    def __init__(self) -> None:
        self.away, self.asked = False, 0

    async def event_page(self, event_id: str) -> EventPageFacts:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable
        event = EventDetails.model_validate({
            "event_id": event_id, "name": "<i>Show</i>", "venue": "Arena", "starts_at": "2030-06-01T18:00:00Z",
            "timezone": "Europe/Berlin", "currency": "EUR", "price_from_minor": 100,
            "limits": {"tickets_per_order": 6, "tickets_per_customer": 0, "tour_tickets_per_customer": 0,
                       "hold_ttl_s": 300, "pay_ttl_s": 600},
            "sections": [
                {"section_id": name, "name": name, "kind": "seated", "type": "std", "capacity": 10, "price_minor": 100,
                 "regular_price_minor": 100, "currency": "EUR", "rows": 1, "seats_per_row": 10,
                 "price_levels": [{"name": "front", "rows": (1, 1), "price_minor": 300}]}
                for name in ("A", "B")
            ],
        })  # fmt: skip
        return EventPageFacts(event=event, availability=SectionList(sections=[]))

    async def prices(self, event_id: str, each: list[int]) -> PricesAnswer:
        return PricesAnswer(all_in={minor: minor + 50 for minor in each})


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def pages(state: Any, queue: FakeQueue, settings: Settings, shop: Shop) -> EventPages:
    queue.open()
    lines: LineCache = state.line_cache
    await lines.line("show")
    return EventPages(lines, shop, shop, settings)  # type: ignore[arg-type] # it answers as both


async def html(pages: EventPages, language: str = "en", *, may_have_place: bool = True) -> str:
    document = await pages.page("show", language, may_have_place=may_have_place)
    return document._plain.decode()


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


async def test_a_thousand_readers_cost_one_question_and_a_failure_costs_no_page(pages: EventPages, shop: Shop) -> None:
    read = await asyncio.gather(*(pages.page("show", "en", may_have_place=False) for _ in range(1000)))
    assert (len(set(map(id, read))), shop.asked) == (1, 1)
    shop.away = True
    assert set(facts(await html(pages, "de", may_have_place=True))) == {f"{PATH}/queue"}, "German was not rendered yet"
