"""Browsers get an HTML page for an unknown address and for an overloaded service; programs get problem documents."""

from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from features.pages import problem_page
from shared.errors.problems import Unavailable
from shared.words.words import LANGUAGES, words
from tests.support.running.suite import RunningSuite


@pytest.mark.parametrize("path", ["/nowhere", "/e/no-such-event", "/e/not;ours", "/o/short", "/static/none.js"])
async def test_an_unknown_address_answers_a_page_that_links_to_all_events(
    page: Any, suite: RunningSuite, path: str
) -> None:
    response = await page.goto(f"{suite.url}{path}")
    assert (response.status, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    await expect(page.get_by_role("heading")).to_have_text("Page not found")
    await page.get_by_role("link", name="All events").click()
    await expect(page.locator("#events")).to_be_visible()
    async with suite.browser() as program:
        problem = await program.get(path)
    assert (problem.status_code, problem.headers["content-type"]) == (404, "application/problem+json")


async def test_a_page_for_an_unavailable_service_reloads_by_itself(page: Any, suite: RunningSuite) -> None:
    requests: list[str] = []

    async def unavailable_once(route: Any) -> None:
        requests.append(route.request.url)
        if len(requests) > 1:
            return await route.fallback()
        problem = Unavailable()
        return await route.fulfill(
            status=503, body=problem_page.page(problem), content_type=problem_page.MEDIA_TYPE,
            headers=problem_page.headers(problem),
        )  # fmt: skip

    await page.route("**/e/arena-2026", unavailable_once)
    await page.goto(f"{suite.url}/e/arena-2026")
    await expect(page.get_by_role("heading")).to_have_text("One moment, please")
    await expect(page.locator("#event-name")).to_have_text("Northern Lights Live", timeout=20_000)
    assert len(requests) == 2


async def of_a_balancer(page: Any, suite: RunningSuite) -> None:
    """Shows the page that a balancer has for an outage of everything else."""
    problem = Unavailable()
    await page.route("**/e/gone", lambda route: route.fulfill(
        status=503, body=problem_page.page(problem), content_type=problem_page.MEDIA_TYPE,
        headers=problem_page.headers(problem),
    ))  # fmt: skip
    await page.goto(f"{suite.url}/e/gone")


@pytest.mark.parametrize(("locale", "chosen", "language"), [
    ("de-AT", None, "de"), ("ar-EG", None, "ar"), ("pl-PL", None, "en"), ("de-DE", "fr", "fr"),
])  # fmt: skip
async def test_a_balancers_page_is_in_the_language_of_the_browser_or_of_the_choice(
    chromium: Any, suite: RunningSuite, locale: str, chosen: str | None, language: str
) -> None:
    context = await chromium.new_context(locale=locale)
    page = await context.new_page()
    if chosen:
        await page.goto(f"{suite.url}/?lang={chosen}")
    await of_a_balancer(page, suite)
    text = words(language)
    await expect(page.get_by_role("heading")).to_have_text(text("page_one_moment"))
    await expect(page.locator("html")).to_have_attribute("lang", language)
    await expect(page.locator("html")).to_have_attribute("dir", text.direction)
    await expect(page).to_have_title(text("page_one_moment"))
    assert text("problem_unavailable") in await page.locator("main").inner_text()
    await context.close()


async def test_without_scripts_a_balancers_page_speaks_every_language(chromium: Any, suite: RunningSuite) -> None:
    context = await chromium.new_context(java_script_enabled=False)
    page = await context.new_page()
    await of_a_balancer(page, suite)
    for language in LANGUAGES:
        part = page.locator(f"section[lang={language}]")
        await expect(part.get_by_role("heading")).to_have_text(words(language)("page_one_moment"))
        await expect(part).to_be_visible()
    await context.close()


def test_a_head_request_has_the_headers_of_a_get(suite: RunningSuite) -> None:
    for path in ("/", "/e/arena-2026", "/o/ABCDEFGH12"):
        get, head = httpx.get(f"{suite.url}{path}"), httpx.head(f"{suite.url}{path}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
