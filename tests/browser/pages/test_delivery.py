"""What the event's page costs a phone: four requests for the first view, one for the second; 28 KB of scripts. The
recorded answers are still what the API's documents say.
"""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import LANGUAGES, words
from tests.browser.recorded import api_documents
from tests.browser.recorded.site import BYTES, RecordedSite, recorded
from tests.browser.traffic import Traffic

REQUESTS_MAX, BYTES_MAX, TRANSLATED_BYTES_MAX = 4, 28_000, 29_500
MINORS = [4000 + 100 * n for n in range(6)]
FEE_MINOR = 50


@pytest.fixture
def priced(site: RecordedSite) -> RecordedSite:
    """An event with six prices, whose page brings the answers that it needs first."""
    site.brings_answers = True
    event, stock, prices = (
        f"GET {path}" for path in ("/events/floor", "/events/floor/sections", "/orders/events/floor/prices")
    )
    for request in (event, stock):
        [floor] = site.answers[request]["sections"]
        parts = {
            minor: {"section_id": f"S{n}", "name": f"Section {n}", "price_minor": minor}
            for n, minor in enumerate(MINORS)
        }
        site.change(request, sections=[floor | part for part in parts.values()])
    fee = {"name": "Booking fee", "per": "ticket", "amount_minor": FEE_MINOR, "percent": None}
    site.change(prices, fees=[fee], all_in={str(minor): minor + FEE_MINOR for minor in MINORS})
    return site


async def open_event(page: Any, site: RecordedSite, language: str) -> Traffic:
    traffic = await Traffic.of(page)
    await page.goto(f"{site.url}/e/floor", wait_until="networkidle")
    await expect(page.locator("#join")).to_be_visible()
    await expect(page.locator("#section-S5 .left")).to_have_text(words(language)("left_of", n=50, total=50))
    await expect(page.locator("#section-S5 .price")).to_have_text(re.compile(r"45[.,]50"))
    return traffic


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=[] if name in ("ar", "en") else pytest.mark.proof) for name in LANGUAGES]
)
async def test_the_first_view_takes_four_requests_and_the_second_one(
    page: Any, priced: RecordedSite, language: str
) -> None:
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": priced.url}])
    priced.change("GET /events/floor", name="Small & <quick>")
    first = await open_event(page, priced, language)
    assert len(first.urls) <= REQUESTS_MAX, first.urls
    assert 0 < first.bytes <= (BYTES_MAX if language == "en" else TRANSLATED_BYTES_MAX), first.bytes
    await expect(page.locator("#event-name")).to_have_text("Small & <quick>")
    again = await page.context.new_page()
    second = await open_event(again, priced, language)
    assert second.urls == [f"{priced.url}/e/floor"]


async def test_the_document_tells_the_truth_before_any_script_runs(plain: Any, priced: RecordedSite) -> None:
    priced.change("GET /events/floor", name="</script><b>Bold", venue="Polar Arena")
    await plain.goto(f"{priced.url}/e/floor")
    await expect(plain.locator("#event-name")).to_have_text("</script><b>Bold")
    await expect(plain.locator("#event-venue")).to_have_text("Polar Arena")
    assert await plain.title() == "</script><b>Bold · Onsale"
    assert await plain.locator("meta[property='og:title']").get_attribute("content") == "</script><b>Bold"


STATUSES = ("waiting", "ready", "admitted")  # of a place, recorded by these names


def test_every_recorded_answer_fits_the_documents() -> None:
    answers = recorded()
    for status in STATUSES:
        api_documents.check("GET", "/events/hall/queue/status", answers.pop(status))
    told = {request: body for request, body in answers.items() if isinstance(body, dict) and BYTES not in body}
    assert len(told) > 30
    for request, body in told.items():
        method, path = request.split(" ")
        api_documents.check(method, path, body)


@pytest.mark.parametrize("change", [{"tickets": None}, {"made_up": 1}])
def test_an_answer_that_does_not_fit_is_found(change: dict[str, object]) -> None:
    path = "/orders/ABCDEFGH2345/tickets"
    with pytest.raises(AssertionError, match=next(iter(change))):
        api_documents.check("GET", path, recorded()[f"GET {path}"] | change)
