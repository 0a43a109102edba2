"""The button on a promoter's page of another origin, under a strict policy: state, window, and the ways without one."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from proof.browser.embedding.conftest import PromotersSite
from tests.browser.readability import axe_problems, contrast_problems
from tests.browser.steps import expect_confirmed, hold_and_pay, select_ga_ticket

BUTTON, STATUS = "onsale-button a[part=button]", "onsale-button [part=status]"
TOLD = """() => {
  for (const what of ["onsale:opened", "onsale:closed"]) {
    addEventListener(what, ({ detail }) => { document.body.dataset.told = `${what} ${detail.event}`; });
  }
}"""
TIMEOUT_MS = 30_000


@pytest.fixture
async def desk(chromium: Any) -> AsyncIterator[Any]:
    """A page on a desk. An error of a script or a violation of the policy fails the test."""
    errors: list[str] = []
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    page = await context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    await context.close()
    assert [error for error in errors if "favicon" not in error and "Failed to load resource" not in error] == []


async def show(page: Any, site: PromotersSite) -> Any:
    await page.goto(site.url)
    await expect(page.locator(STATUS)).to_have_text("Im Verkauf")
    return page.locator(BUTTON)


async def test_it_shows_the_state_in_the_colours_of_the_brand(desk: Any, site: PromotersSite) -> None:
    button = await show(desk, site)
    await expect(button).to_have_css("background-color", "rgb(156, 58, 34)")
    await expect(desk.get_by_role("link", name="Karten kaufen (öffnet ein Fenster)", exact=True)).to_be_visible()
    await expect(button).to_have_accessible_description("Im Verkauf")
    assert await desk.get_by_role("link").count() == 1, (
        "what is inside the element is only for those without the script"
    )
    async with site.suite.operator() as admin:
        (await admin.post(f"/admin/events/{site.event_id}/room/pause", json={"reason": "test"})).raise_for_status()
    for language, words in (("fr", "En pause"), ("ar", "متوقف مؤقتًا")):
        await desk.wait_for_timeout(1_200)
        await desk.evaluate("language => { document.querySelector('onsale-button').lang = language }", language)
        await expect(desk.locator(STATUS)).to_have_text(words)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_readable(desk: Any, site: PromotersSite, scheme: Any) -> None:
    await desk.emulate_media(color_scheme=scheme)
    await show(desk, site)
    context = await desk.context.browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = await context.new_page()
    await show(page, site)
    problems = [*await contrast_problems(page), *await axe_problems(page)]
    await context.close()
    assert problems == []


async def test_its_window_is_the_whole_journey_and_knows_nothing_of_the_page(desk: Any, site: PromotersSite) -> None:
    button = await show(desk, site)
    await desk.evaluate(TOLD)
    async with desk.expect_popup() as opened:
        await button.click()
    window = await opened.value
    await window.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")
    await expect(window.locator("html")).to_have_attribute("lang", "de")
    assert await window.evaluate("opener") is None
    await button.click()
    assert len(desk.context.pages) == 2, "a second click brings the window to the front"
    await expect(desk.locator("body")).to_have_attribute("data-told", f"onsale:opened {site.event_id}")
    await window.goto(f"{site.suite.url}/e/{site.event_id}?lang=en")
    await window.locator("#join").click()
    await expect(window.locator("#choosing")).to_be_visible(timeout=TIMEOUT_MS)
    await select_ga_ticket(window)
    await hold_and_pay(window, "ok")
    await expect_confirmed(window)
    await window.close()
    await expect(desk.locator("body")).to_have_attribute("data-told", f"onsale:closed {site.event_id}")
    assert desk.url == site.url


async def test_the_keyboard_opens_it(desk: Any, site: PromotersSite) -> None:
    button = await show(desk, site)
    await desk.keyboard.press("Tab")
    await expect(button).to_be_focused()
    assert await button.evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
    async with desk.expect_popup() as opened:
        await desk.keyboard.press("Enter")
    await (await opened.value).wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


async def test_where_windows_are_blocked_it_is_a_link(desk: Any, site: PromotersSite) -> None:
    await desk.add_init_script("window.open = () => null")
    await (await show(desk, site)).click()
    await desk.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


async def test_with_a_modifier_the_browser_decides(desk: Any, site: PromotersSite) -> None:
    await desk.add_init_script("window.open = () => { throw new Error('not asked for') }")
    async with desk.context.expect_page() as opened:
        await (await show(desk, site)).click(modifiers=["ControlOrMeta"])
    await (await opened.value).wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


async def test_on_a_phone_it_is_a_link(chromium: Any, site: PromotersSite) -> None:
    context = await chromium.new_context(viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True)
    page = await context.new_page()
    button = await show(page, site)
    await expect(button).to_have_accessible_name("Karten kaufen")
    await button.tap()
    await page.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")
    await context.close()


async def test_without_scripts_the_link_inside_is_shown(chromium: Any, site: PromotersSite) -> None:
    context = await chromium.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(site.url)
    await page.get_by_role("link", name="Karten kaufen", exact=True).click()
    await page.wait_for_url(f"{site.suite.url}/e/{site.event_id}")
    await context.close()


async def test_without_the_script_the_link_inside_is_shown(desk: Any, site: PromotersSite) -> None:
    await desk.route("**/embed.js", lambda route: route.abort())
    await desk.goto(site.url)
    await expect(desk.get_by_role("link", name="Karten kaufen", exact=True)).to_be_visible()


async def test_without_the_facts_it_is_a_link_that_shows_no_old_state(desk: Any, site: PromotersSite) -> None:
    await show(desk, site)
    await desk.route("**/button.json*", lambda route: route.abort())
    await desk.evaluate("document.querySelector('onsale-button').lang = 'en'")
    await expect(desk.locator(STATUS)).to_have_text("")
    await expect(desk.locator(BUTTON)).to_have_attribute("href", f"{site.suite.url}/e/{site.event_id}?lang=en")


async def test_no_other_site_reads_more_than_the_button(desk: Any, site: PromotersSite) -> None:
    await show(desk, site)
    async with httpx.AsyncClient(base_url=site.suite.url, headers={"origin": site.url.rstrip("/")}) as other:
        for path in (f"/events/{site.event_id}/queue", f"/events/{site.event_id}", f"/e/{site.event_id}"):
            assert "access-control-allow-origin" not in (await other.get(path)).headers, path
        answer = await other.get(f"/e/{site.event_id}/button.json")
    assert (answer.headers["access-control-allow-origin"], answer.headers.get("set-cookie")) == ("*", None)
    assert "access-control-allow-credentials" not in answer.headers
