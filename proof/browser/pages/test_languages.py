"""The fans' pages in all languages: a journey by clicks, texts that fit the narrowest screen, the menu of languages."""

import re
from typing import Any

import pytest
from playwright import async_api
from playwright.async_api import expect

from shared.words.words import LANGUAGES, Words, words
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import STATES, MockedPage
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    SOON,
    enter,
    expect_confirmed,
    hold,
    pay,
    put_on_sale,
    wait_until_listed,
)
from tests.support.browser import NewPage
from tests.support.running.suite import RunningSuite

NARROWEST: async_api.ViewportSize = {"width": 320, "height": 800}
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]
OTHERS = [language for language in LANGUAGES if language != "en"]


@pytest.fixture(params=LANGUAGES)
def text(request: Any) -> Words:
    return words(request.param)


async def choose_language(page: Any, suite: RunningSuite, language: str) -> None:
    await page.goto(f"{suite.url}/")
    await page.locator(f".languages a[hreflang={language}]").click()
    await expect(page.locator("html")).to_have_attribute("lang", language)


async def expect_no_sideways_scroll(page: Any) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def plain(shown: str) -> str:
    """Without the marks that keep the direction of a part."""
    return re.sub("[\u2066-\u2069]", "", shown)


async def test_a_fan_buys_in_every_language(page: Any, suite: RunningSuite, text: Words) -> None:
    event_id = await put_on_sale(suite, name="Northern Lights", venue="Polar Arena", sections=SECTIONS, starts_at=SOON)
    await page.set_viewport_size(NARROWEST)
    await choose_language(page, suite, text.language)
    await expect(page.locator("html")).to_have_attribute("dir", text.direction)
    await wait_until_listed(page, event_id)
    await page.locator(f"#events a[href='/e/{event_id}']").click()
    await expect(page.locator("#join")).to_have_text(text("join"))
    await expect_no_sideways_scroll(page)
    await enter(page)
    await page.locator("#section-A button").click()
    await page.locator("#seats .seat[data-status=available]").first.click()
    await expect(page.locator("#basket-count")).to_have_text(text("tickets", n=1))
    assert plain(await page.locator("#basket-list").inner_text()) == plain(
        text("seat", section="Block A", row="1", number="1")
    )
    await page.locator("#seats-back").click()
    for n in (2, 3):
        await page.locator("#section-GA1 .step >> nth=1").click()
        await expect(page.locator("#basket-count")).to_have_text(text("tickets", n=n))
    await expect_no_sideways_scroll(page)
    await hold(page)
    await expect(page.locator("#pay")).to_contain_text(re.compile("100[.,]00"))
    await expect_no_sideways_scroll(page)
    await pay(page)
    await expect_confirmed(page)
    await expect(page.locator("#status-title")).to_have_text(text("order_confirmed"))
    await expect(page.locator("#tickets li")).to_have_count(3)
    assert plain(await page.locator("#tickets li span").first.inner_text()) == plain(
        text("row_seat", row="1", number="1")
    )
    await expect(page.locator("html")).to_have_attribute("lang", text.language)
    await expect_no_sideways_scroll(page)


async def test_a_problem_is_told_in_the_language_of_the_page(page: Any, suite: RunningSuite, text: Words) -> None:
    event_id = await put_on_sale(suite, sections=SECTIONS)
    await choose_language(page, suite, text.language)
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.route("**/reservations", lambda route: route.fulfill(
        status=409, content_type="application/json",
        body='{"type": "/problems/sold-out", "title": "Not enough tickets are left.", "status": 409}',
    ))  # fmt: skip
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_have_text(text("problem_sold_out"), timeout=CALL_TIMEOUT_MS)
    await page.unroute("**/reservations")
    await page.route("**/reservations", lambda route: route.fulfill(
        status=409, content_type="application/json",
        body='{"type": "/problems/sold-out", "status": 409, "available": {"GA1": 0, "A": 2}}',
    ))  # fmt: skip
    await page.locator("#best-find").click()
    left = plain(text("only_left", n=2, section="Block A"))
    await expect(page.locator("#trouble-text")).to_contain_text("Block A", timeout=CALL_TIMEOUT_MS)
    assert plain(await page.locator("#trouble-text").inner_text()) == left


async def test_the_menu_works_without_scripts_and_the_choice_is_kept(chromium: Any, suite: RunningSuite) -> None:
    context = await chromium.new_context(java_script_enabled=False, locale="fr-CA")
    page = await context.new_page()
    await page.goto(f"{suite.url}/")
    await expect(page.locator("h1")).to_have_text(words("fr")("catalogue_title"))
    await expect(page.locator("#events a[href='/e/arena-2026']")).to_contain_text("Northern Lights Live")
    await page.locator(".languages a[hreflang=ar]").click()
    await page.goto(f"{suite.url}/")
    await expect(page.locator("h1")).to_have_text(words("ar")("catalogue_title"))
    await context.close()


@pytest.fixture(params=OTHERS)
async def mocked(request: Any, site: RecordedSite, new_page: NewPage) -> MockedPage:
    """`test_readability.py` has English."""
    page = await new_page(viewport=NARROWEST, locale=request.param, reduced_motion="reduce")
    return MockedPage(page, site)


@pytest.mark.parametrize("state", [state for state in STATES if state != "page not found"])
async def test_every_state_fits_the_narrowest_screen(mocked: MockedPage, state: str) -> None:
    await STATES[state](mocked)
    assert [*await layout_problems(mocked.page), *await axe_problems(mocked.page)] == []
    await expect_no_sideways_scroll(mocked.page)
