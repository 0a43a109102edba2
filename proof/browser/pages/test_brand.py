"""The seller's brand on the pages: readable in light and dark on every screen, and in its place before it is loaded."""

import threading
from typing import Any

import pytest
from playwright.async_api import expect

from shared.contracts.catalogue import BrandDetails
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import STATES, MockedPage
from tests.browser.steps import (
    SOON,
    enter,
    expect_confirmed,
    hold,
    pay,
    put_on_sale,
    select_ga_ticket,
    wait_until_listed,
)
from tests.browser.traffic import Traffic
from tests.support.browser import SVG, NewPage, picture
from tests.support.running.suite import RunningSuite

SECTIONS = [
    {"section_id": f"S{n}", "name": f"Section {n}", "kind": "ga", "capacity": 50, "price_minor": 4000 + 100 * n}
    for n in range(6)
]
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
async def event_id(suite: RunningSuite) -> str:
    """An event with all of a brand. Pictures come before the file that names them."""
    event_id = "branded"
    async with suite.operator() as admin:
        for name, content in (("logo.svg", SVG), ("hall.jpg", HALL)):
            (await admin.put(f"/admin/inventory/events/{event_id}/pictures/{name}", content=content)).raise_for_status()
    shown = {"name": "Northern Lights", "venue": "Polar Arena", "brand": BRAND}
    await put_on_sale(suite, event_id=event_id, sections=SECTIONS, starts_at=SOON, **shown)
    suite.opened.remove(event_id)  # it stays open for all tests of this module
    return event_id


@pytest.fixture
async def mocked(site: RecordedSite, new_page: NewPage) -> MockedPage:
    """An event with the colours of a brand."""
    page = await new_page(viewport={"width": 375, "height": 812}, reduced_motion="reduce")
    return MockedPage(page, site, brand=BrandDetails.model_validate(COLOURS).model_dump(mode="json"))


BRANDED_STATES = (
    "before", "during", "line full", "waiting", "lottery drawn", "called while hidden", "choosing", "choosing seats",
    "held", "order declined", "order confirmed", "order partly refunded",
)  # fmt: skip


@pytest.mark.parametrize("state", BRANDED_STATES)
async def test_every_state_is_readable_in_a_brand(mocked: MockedPage, state: str) -> None:
    page, problems = mocked.page, []
    await page.set_viewport_size({"width": 375, "height": 812})
    await STATES[state](mocked)
    await page.wait_for_timeout(800)  # until the hall is drawn: it makes the page longer
    height_px = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": 375, "height": height_px})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await page.wait_for_timeout(100)
        problems += [f"{scheme}: {problem}" for problem in [*await contrast_problems(page), *await axe_problems(page)]]
    await page.emulate_media(color_scheme="light")
    assert problems == [], "\n".join(problems)


@pytest.mark.parametrize("language", ["en", "ar"])
async def test_the_branded_page_is_readable_on_every_screen(
    page: Any, suite: RunningSuite, event_id: str, language: str
) -> None:
    await page.emulate_media(reduced_motion="reduce")
    await page.goto(f"{suite.url}/e/{event_id}?lang={language}", wait_until="networkidle")
    await expect(page.locator("#join")).to_be_visible()
    problems: list[str] = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 844})
        problems += [f"{width}: {problem}" for problem in await layout_problems(page)]
        await page.set_viewport_size(
            {"width": width, "height": await page.evaluate("document.documentElement.scrollHeight")}
        )
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_timeout(100)
            found = [*await contrast_problems(page), *await axe_problems(page)]
            problems += [f"{width} {scheme}: {problem}" for problem in found]
    assert problems == [], "\n".join(problems)


@pytest.mark.parametrize("width", WIDTHS)
async def test_nothing_moves_when_the_pictures_come(page: Any, suite: RunningSuite, event_id: str, width: int) -> None:
    arrived = threading.Event()
    await page.set_viewport_size({"width": width, "height": 844})
    waiting: list[Any] = []
    await page.route("**/pictures/*", lambda route: route.continue_() if arrived.is_set() else waiting.append(route))
    await page.goto(f"{suite.url}/e/{event_id}", wait_until="domcontentloaded")
    await expect(page.locator("#join")).to_be_visible()
    await page.wait_for_timeout(300)
    before = await page.locator("#journey").bounding_box(), await page.locator("#poster").bounding_box()
    await page.evaluate(WATCH_SHIFTS)
    arrived.set()
    for route in waiting:
        await route.continue_()
    await expect(page.locator("#poster .picture")).to_have_js_property("naturalWidth", 1600)
    assert (await page.locator("#journey").bounding_box(), await page.locator("#poster").bounding_box()) == before
    await page.wait_for_timeout(200)
    assert await page.evaluate("shifted") == 0


async def test_a_brand_costs_four_requests_more(page: Any, suite: RunningSuite, event_id: str) -> None:
    traffic = await Traffic.of(page)
    await page.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    names = sorted(url.partition("?")[0].rpartition("/")[2].partition("-")[0] for url in traffic.urls)
    assert len(names) == 7, names
    assert sum(name.endswith((".svg", ".jpg")) for name in names) == 2, "the logo is the icon, too"
    again = await page.context.new_page()
    second = await Traffic.of(again)
    await again.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    assert len(second.urls) == 1


async def test_the_brand_goes_with_the_fan_from_the_catalogue_to_the_order(
    page: Any, suite: RunningSuite, event_id: str
) -> None:
    await page.goto(f"{suite.url}/")
    await wait_until_listed(page, event_id)
    card = page.locator(f"#events a[href='/e/{event_id}']")
    await expect(card.get_by_role("img", name="Light beams over the stage")).to_have_attribute("loading", "lazy")
    await card.click()
    orange = "rgb(194, 65, 12)"
    await expect(page.get_by_role("link", name="Polar & Söhne")).to_be_visible()
    await expect(page.locator("#join")).to_have_css("background-color", orange)
    await enter(page)
    await select_ga_ticket(page)
    await hold(page)
    await pay(page)
    await expect_confirmed(page)
    await expect(page.get_by_role("link", name="Polar & Söhne")).to_be_visible()
    await expect(page.locator("#tickets-pdf")).to_have_css("color", orange)
    terms = page.get_by_role("navigation", name="About the seller").get_by_role("link", name="Terms and conditions")
    await expect(terms).to_have_attribute("href", "https://polar.example/terms")
    async with page.expect_download() as download:
        await page.locator("#calendar").click()
    assert (await download.value).suggested_filename == f"{page.url.rpartition('/')[2]}.ics", "the order's own"


async def test_on_paper_the_page_is_black_on_white(page: Any, suite: RunningSuite, event_id: str) -> None:
    await page.goto(f"{suite.url}/e/{event_id}", wait_until="networkidle")
    await page.emulate_media(media="print")
    for selector in ("#poster", "#event-own", "#event-date"):
        await expect(page.locator(selector)).to_have_css("color", "rgb(0, 0, 0)")
    await expect(page.locator("#poster")).to_have_css("background-image", "none")
    for selector in ("#journey", "#poster .picture", ".languages"):
        await expect(page.locator(selector)).to_be_hidden()


async def test_the_page_can_be_installed(page: Any, suite: RunningSuite, event_id: str) -> None:
    await page.goto(f"{suite.url}/e/{event_id}")
    devtools = await page.context.new_cdp_session(page)
    found = await devtools.send("Page.getAppManifest")
    assert (found["errors"], '"display":"standalone"' in found["data"]) == ([], True)
