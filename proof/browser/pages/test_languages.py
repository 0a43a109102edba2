"""The fans' pages in all languages: a journey by clicks, texts that fit the narrowest screen, the menu of languages."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api

from shared.words.words import LANGUAGES, Words, words
from tests.browser.readability import axe_problems, layout_problems
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
from tests.support.running.suite import RunningSuite

NARROWEST: sync_api.ViewportSize = {"width": 320, "height": 800}
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]
OTHERS = [language for language in LANGUAGES if language != "en"]


@pytest.fixture(params=LANGUAGES)
def text(request: Any) -> Words:
    return words(request.param)


def choose_language(page: Any, suite: RunningSuite, language: str) -> None:
    page.goto(f"{suite.url}/")
    page.locator(f".languages a[hreflang={language}]").click()
    sync_api.expect(page.locator("html")).to_have_attribute("lang", language)


def expect_no_sideways_scroll(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def plain(shown: str) -> str:
    """Without the marks that keep the direction of a part."""
    return re.sub("[\u2066-\u2069]", "", shown)


def test_a_fan_buys_in_every_language(page: Any, suite: RunningSuite, text: Words) -> None:
    event_id = put_on_sale(suite, name="Northern Lights", venue="Polar Arena", sections=SECTIONS, starts_at=SOON)
    page.set_viewport_size(NARROWEST)
    choose_language(page, suite, text.language)
    sync_api.expect(page.locator("html")).to_have_attribute("dir", text.direction)
    wait_until_listed(page, event_id)
    page.locator(f"#events a[href='/e/{event_id}']").click()
    sync_api.expect(page.locator("#join")).to_have_text(text("join"))
    expect_no_sideways_scroll(page)
    enter(page)
    page.locator("#section-A button").click()
    page.locator("#seats .seat[data-status=available]").first.click()
    sync_api.expect(page.locator("#basket-count")).to_have_text(text("tickets", n=1))
    assert plain(page.locator("#basket-list").inner_text()) == plain(
        text("seat", section="Block A", row="1", number="1")
    )
    page.locator("#seats-back").click()
    for n in (2, 3):
        page.locator("#section-GA1 .step >> nth=1").click()
        sync_api.expect(page.locator("#basket-count")).to_have_text(text("tickets", n=n))
    expect_no_sideways_scroll(page)
    hold(page)
    sync_api.expect(page.locator("#pay")).to_contain_text(re.compile("100[.,]00"))
    expect_no_sideways_scroll(page)
    pay(page)
    expect_confirmed(page)
    sync_api.expect(page.locator("#status-title")).to_have_text(text("order_confirmed"))
    sync_api.expect(page.locator("#tickets li")).to_have_count(3)
    assert plain(page.locator("#tickets li span").first.inner_text()) == plain(text("row_seat", row="1", number="1"))
    sync_api.expect(page.locator("html")).to_have_attribute("lang", text.language)
    expect_no_sideways_scroll(page)


def test_a_problem_is_told_in_the_language_of_the_page(page: Any, suite: RunningSuite, text: Words) -> None:
    event_id = put_on_sale(suite, sections=SECTIONS)
    choose_language(page, suite, text.language)
    page.goto(f"{suite.url}/e/{event_id}")
    enter(page)
    page.route("**/reservations", lambda route: route.fulfill(
        status=409, content_type="application/json",
        body='{"type": "/problems/sold-out", "title": "Not enough tickets are left.", "status": 409}',
    ))  # fmt: skip
    page.locator("#best-find").click()
    sync_api.expect(page.locator("#trouble-text")).to_have_text(text("problem_sold_out"), timeout=CALL_TIMEOUT_MS)
    page.unroute("**/reservations")
    page.route("**/reservations", lambda route: route.fulfill(
        status=409, content_type="application/json",
        body='{"type": "/problems/sold-out", "status": 409, "available": {"GA1": 0, "A": 2}}',
    ))  # fmt: skip
    page.locator("#best-find").click()
    left = plain(text("only_left", n=2, section="Block A"))
    sync_api.expect(page.locator("#trouble-text")).to_contain_text("Block A", timeout=CALL_TIMEOUT_MS)
    assert plain(page.locator("#trouble-text").inner_text()) == left


def test_the_menu_works_without_scripts_and_the_choice_is_kept(browser: Any, suite: RunningSuite) -> None:
    context = browser.new_context(java_script_enabled=False, locale="fr-CA")
    page = context.new_page()
    page.goto(f"{suite.url}/")
    sync_api.expect(page.locator("h1")).to_have_text(words("fr")("catalogue_title"))
    sync_api.expect(page.locator("#events a[href='/e/arena-2026']")).to_contain_text("Northern Lights Live")
    page.locator(".languages a[hreflang=ar]").click()
    page.goto(f"{suite.url}/")
    sync_api.expect(page.locator("h1")).to_have_text(words("ar")("catalogue_title"))
    context.close()


@pytest.fixture(scope="module", params=OTHERS)
def mocked(request: Any, suite: RunningSuite, browser: sync_api.Browser) -> Iterator[MockedPage]:
    """One page a language for all states; `test_readability.py` has them in English."""
    context = browser.new_context(viewport=NARROWEST, locale=request.param, reduced_motion="reduce")
    yield MockedPage(context.new_page(), suite)
    context.close()


@pytest.mark.parametrize("state", [state for state in STATES if state != "page not found"])
def test_every_state_fits_the_narrowest_screen(mocked: MockedPage, state: str) -> None:
    STATES[state](mocked)
    assert [*layout_problems(mocked.page), *axe_problems(mocked.page)] == []
    expect_no_sideways_scroll(mocked.page)
