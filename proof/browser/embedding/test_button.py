"""The button on a promoter's page of another origin, under a strict policy: state, window, and the ways without one."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright import sync_api

from proof.browser.embedding.conftest import PromotersSite
from tests.browser.readability import axe_problems, contrast_problems
from tests.browser.steps import expect_confirmed, hold_and_pay, operator, select_ga_ticket

BUTTON, STATUS = "onsale-button a[part=button]", "onsale-button [part=status]"
TOLD = """() => {
  for (const what of ["onsale:opened", "onsale:closed"]) {
    addEventListener(what, ({ detail }) => { document.body.dataset.told = `${what} ${detail.event}`; });
  }
}"""
TIMEOUT_MS = 30_000


@pytest.fixture
def desk(browser: sync_api.Browser) -> Iterator[Any]:
    """A page on a desk. An error of a script or a violation of the policy fails the test."""
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    page = context.new_page()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert [error for error in errors if "favicon" not in error and "Failed to load resource" not in error] == []


def show(page: Any, site: PromotersSite) -> Any:
    page.goto(site.url)
    sync_api.expect(page.locator(STATUS)).to_have_text("Im Verkauf")
    return page.locator(BUTTON)


def test_it_shows_the_state_in_the_colours_of_the_brand(desk: Any, site: PromotersSite) -> None:
    button = show(desk, site)
    sync_api.expect(button).to_have_css("background-color", "rgb(156, 58, 34)")
    sync_api.expect(desk.get_by_role("link", name="Karten kaufen (öffnet ein Fenster)", exact=True)).to_be_visible()
    sync_api.expect(button).to_have_accessible_description("Im Verkauf")
    assert desk.get_by_role("link").count() == 1, "what is inside the element is only for those without the script"
    with operator(site.suite) as admin:
        admin.post(f"/admin/events/{site.event_id}/room/pause", json={"reason": "test"}).raise_for_status()
    for language, words in (("fr", "En pause"), ("ar", "متوقف مؤقتًا")):
        desk.wait_for_timeout(1_200)
        desk.evaluate("language => { document.querySelector('onsale-button').lang = language }", language)
        sync_api.expect(desk.locator(STATUS)).to_have_text(words)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable(desk: Any, site: PromotersSite, scheme: Any) -> None:
    desk.emulate_media(color_scheme=scheme)
    show(desk, site)
    context = desk.context.browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    show(page, site)
    problems = [*contrast_problems(page), *axe_problems(page)]
    context.close()
    assert problems == []


def test_its_window_is_the_whole_journey_and_knows_nothing_of_the_page(desk: Any, site: PromotersSite) -> None:
    button = show(desk, site)
    desk.evaluate(TOLD)
    with desk.expect_popup() as opened:
        button.click()
    window = opened.value
    window.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")
    sync_api.expect(window.locator("html")).to_have_attribute("lang", "de")
    assert window.evaluate("opener") is None
    button.click()
    assert len(desk.context.pages) == 2, "a second click brings the window to the front"
    sync_api.expect(desk.locator("body")).to_have_attribute("data-told", f"onsale:opened {site.event_id}")
    window.goto(f"{site.suite.url}/e/{site.event_id}?lang=en")
    window.locator("#join").click()
    sync_api.expect(window.locator("#choosing")).to_be_visible(timeout=TIMEOUT_MS)
    select_ga_ticket(window)
    hold_and_pay(window, "ok")
    expect_confirmed(window)
    window.close()
    sync_api.expect(desk.locator("body")).to_have_attribute("data-told", f"onsale:closed {site.event_id}")
    assert desk.url == site.url


def test_the_keyboard_opens_it(desk: Any, site: PromotersSite) -> None:
    button = show(desk, site)
    desk.keyboard.press("Tab")
    sync_api.expect(button).to_be_focused()
    assert button.evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
    with desk.expect_popup() as opened:
        desk.keyboard.press("Enter")
    opened.value.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


def test_where_windows_are_blocked_it_is_a_link(desk: Any, site: PromotersSite) -> None:
    desk.add_init_script("window.open = () => null")
    show(desk, site).click()
    desk.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


def test_with_a_modifier_the_browser_decides(desk: Any, site: PromotersSite) -> None:
    desk.add_init_script("window.open = () => { throw new Error('not asked for') }")
    with desk.context.expect_page() as opened:
        show(desk, site).click(modifiers=["ControlOrMeta"])
    opened.value.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")


def test_on_a_phone_it_is_a_link(browser: sync_api.Browser, site: PromotersSite) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True)
    page = context.new_page()
    button = show(page, site)
    sync_api.expect(button).to_have_accessible_name("Karten kaufen")
    button.tap()
    page.wait_for_url(f"{site.suite.url}/e/{site.event_id}?lang=de")
    context.close()


def test_without_scripts_the_link_inside_is_shown(browser: sync_api.Browser, site: PromotersSite) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    page.get_by_role("link", name="Karten kaufen", exact=True).click()
    page.wait_for_url(f"{site.suite.url}/e/{site.event_id}")
    context.close()


def test_without_the_script_the_link_inside_is_shown(desk: Any, site: PromotersSite) -> None:
    desk.route("**/embed.js", lambda route: route.abort())
    desk.goto(site.url)
    sync_api.expect(desk.get_by_role("link", name="Karten kaufen", exact=True)).to_be_visible()


def test_without_the_facts_it_is_a_link_that_shows_no_old_state(desk: Any, site: PromotersSite) -> None:
    show(desk, site)
    desk.route("**/button.json*", lambda route: route.abort())
    desk.evaluate("document.querySelector('onsale-button').lang = 'en'")
    sync_api.expect(desk.locator(STATUS)).to_have_text("")
    sync_api.expect(desk.locator(BUTTON)).to_have_attribute("href", f"{site.suite.url}/e/{site.event_id}?lang=en")


def test_no_other_site_reads_more_than_the_button(desk: Any, site: PromotersSite) -> None:
    show(desk, site)
    with httpx.Client(base_url=site.suite.url, headers={"origin": site.url.rstrip("/")}) as other:
        for path in (f"/events/{site.event_id}/queue", f"/events/{site.event_id}", f"/e/{site.event_id}"):
            assert "access-control-allow-origin" not in other.get(path).headers, path
        answer = other.get(f"/e/{site.event_id}/button.json")
    assert (answer.headers["access-control-allow-origin"], answer.headers.get("set-cookie")) == ("*", None)
    assert "access-control-allow-credentials" not in answer.headers
