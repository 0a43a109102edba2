"""The seller's brand on the pages: readable in light and dark on every screen, and in its place before it is loaded."""

import threading
from typing import Any

import pytest
from playwright import sync_api

from tests.browser.pages.test_delivery import SECTIONS, Traffic
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.states import STATES, MockedPage
from tests.browser.steps import (
    SOON,
    enter,
    expect_confirmed,
    hold,
    operator,
    pay,
    put_on_sale,
    select_ga_ticket,
    wait_until_listed,
)
from tests.support.pictures import SVG, picture
from tests.support.running.suite import RunningSuite

# At the edge of what is accepted: 4.55:1 on a tinted button, 4.5:1 in the dark.
COLOURS = {"accent": "#c2410c", "background": "#f4efe9", "background_dark": "#1a1410"}
BRAND = {
    **COLOURS, "name": "Polar & Söhne", "logo": "logo.svg", "font_stack": "humanist",
    "picture": {"file": "hall.jpg", "alt": "Light beams over the stage"},
    "help_url": "https://polar.example/help", "terms_url": "https://polar.example/terms",
}  # fmt: skip
HALL = picture("JPEG", (1600, 900))
WIDTHS = (320, 390, 1440)
WATCH_SHIFTS = """() => {
  window.shifted = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) window.shifted += each.value; })
    .observe({ type: 'layout-shift' });
}"""


@pytest.fixture(scope="module")
def event_id(suite: RunningSuite) -> str:
    """An event with all of a brand. Pictures come before the file that names them."""
    event_id = "branded"
    with operator(suite) as admin:
        for name, content in (("logo.svg", SVG), ("hall.jpg", HALL)):
            admin.put(f"/admin/inventory/events/{event_id}/pictures/{name}", content=content).raise_for_status()
    shown = {"name": "Northern Lights", "venue": "Polar Arena", "brand": BRAND}
    put_on_sale(suite, event_id=event_id, sections=SECTIONS, starts_at=SOON, **shown)
    suite.opened.remove(event_id)  # it stays open for all tests of this module
    return event_id


@pytest.fixture(scope="module")
def mocked(suite: RunningSuite, browser: sync_api.Browser) -> MockedPage:
    """One page for all states of an event with the colours of a brand."""
    context = browser.new_context(viewport={"width": 375, "height": 812}, locale="en-GB", reduced_motion="reduce")
    return MockedPage(context.new_page(), suite, brand=COLOURS)


BRANDED_STATES = (
    "before", "during", "line full", "waiting", "lottery drawn", "called while hidden", "choosing", "choosing seats",
    "held", "order declined", "order confirmed", "order partly refunded",
)  # fmt: skip


@pytest.mark.parametrize("state", BRANDED_STATES)
def test_every_state_is_readable_in_a_brand(mocked: MockedPage, state: str) -> None:
    page, problems = mocked.page, []
    page.set_viewport_size({"width": 375, "height": 812})
    STATES[state](mocked)
    page.wait_for_timeout(800)  # until the hall is drawn: it makes the page longer
    height_px = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 375, "height": height_px})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(100)
        problems += [f"{scheme}: {problem}" for problem in [*contrast_problems(page), *axe_problems(page)]]
    page.emulate_media(color_scheme="light")
    assert problems == [], "\n".join(problems)


@pytest.mark.parametrize("language", ["en", "ar"])
def test_the_branded_page_is_readable_on_every_screen(
    page: Any, suite: RunningSuite, event_id: str, language: str
) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{suite.url}/e/{event_id}?lang={language}", wait_until="networkidle")
    sync_api.expect(page.locator("#join")).to_be_visible()
    problems: list[str] = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        problems += [f"{width}: {problem}" for problem in layout_problems(page)]
        page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight")})
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(100)
            found = [*contrast_problems(page), *axe_problems(page)]
            problems += [f"{width} {scheme}: {problem}" for problem in found]
    assert problems == [], "\n".join(problems)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_moves_when_the_pictures_come(page: Any, suite: RunningSuite, event_id: str, width: int) -> None:
    arrived = threading.Event()
    page.set_viewport_size({"width": width, "height": 844})
    waiting: list[Any] = []
    page.route("**/pictures/*", lambda route: route.continue_() if arrived.is_set() else waiting.append(route))
    page.goto(f"{suite.url}/e/{event_id}", wait_until="domcontentloaded")
    sync_api.expect(page.locator("#join")).to_be_visible()
    page.wait_for_timeout(300)
    before = page.locator("#journey").bounding_box(), page.locator("#poster").bounding_box()
    page.evaluate(WATCH_SHIFTS)
    arrived.set()
    for route in waiting:
        route.continue_()
    sync_api.expect(page.locator("#poster .picture")).to_have_js_property("naturalWidth", 1600)
    assert (page.locator("#journey").bounding_box(), page.locator("#poster").bounding_box()) == before
    page.wait_for_timeout(200)
    assert page.evaluate("shifted") == 0


def test_a_brand_costs_four_requests_more(page: Any, suite: RunningSuite, event_id: str) -> None:
    traffic = Traffic(page)
    page.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    names = sorted(url.partition("?")[0].rpartition("/")[2].partition("-")[0] for url in traffic.urls)
    assert len(names) == 7, names
    assert sum(name.endswith((".svg", ".jpg")) for name in names) == 2, "the logo is the icon, too"
    again = page.context.new_page()
    second = Traffic(again)
    again.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    assert len(second.urls) == 1


def test_the_brand_goes_with_the_fan_from_the_catalogue_to_the_order(
    page: Any, suite: RunningSuite, event_id: str
) -> None:
    page.goto(f"{suite.url}/")
    wait_until_listed(page, event_id)
    card = page.locator(f"#events a[href='/e/{event_id}']")
    sync_api.expect(card.get_by_role("img", name="Light beams over the stage")).to_have_attribute("loading", "lazy")
    card.click()
    orange = "rgb(194, 65, 12)"
    sync_api.expect(page.get_by_role("link", name="Polar & Söhne")).to_be_visible()
    sync_api.expect(page.locator("#join")).to_have_css("background-color", orange)
    enter(page)
    select_ga_ticket(page)
    hold(page)
    pay(page)
    expect_confirmed(page)
    sync_api.expect(page.get_by_role("link", name="Polar & Söhne")).to_be_visible()
    sync_api.expect(page.locator("#tickets-pdf")).to_have_css("color", orange)
    terms = page.get_by_role("navigation", name="About the seller").get_by_role("link", name="Terms and conditions")
    sync_api.expect(terms).to_have_attribute("href", "https://polar.example/terms")
    with page.expect_download() as download:
        page.locator("#calendar").click()
    assert download.value.suggested_filename == f"{page.url.rpartition('/')[2]}.ics", "the order's own"


def test_on_paper_the_page_is_black_on_white(page: Any, suite: RunningSuite, event_id: str) -> None:
    page.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    page.emulate_media(media="print")
    for selector in ("#poster", "#event-own", "#event-date"):
        sync_api.expect(page.locator(selector)).to_have_css("color", "rgb(0, 0, 0)")
    sync_api.expect(page.locator("#poster")).to_have_css("background-image", "none")
    for selector in ("#journey", "#poster .picture", ".languages"):
        sync_api.expect(page.locator(selector)).to_be_hidden()


def test_the_page_can_be_installed(page: Any, suite: RunningSuite, event_id: str) -> None:
    page.goto(f"{suite.url}/e/{event_id}")
    devtools = page.context.new_cdp_session(page)
    found = devtools.send("Page.getAppManifest")
    assert (found["errors"], '"display":"standalone"' in found["data"]) == ([], True)
