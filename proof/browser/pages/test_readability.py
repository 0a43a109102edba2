"""Every state of the fan pages is readable: enough contrast in light and dark mode, no text cut, covered or outside the
window with fonts twice as large or on the narrowest screen, and nothing that axe finds.
"""

import pytest
from playwright import async_api

from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import STATES, MockedPage
from tests.support.browser import NewPage

DEFAULT_FONT_PX = 16
LAYOUTS = {
    "desktop, fonts twice as large": (1280, 2 * DEFAULT_FONT_PX),
    "phone, fonts twice as large": (375, 2 * DEFAULT_FONT_PX),
    "narrowest screen": (320, DEFAULT_FONT_PX),
    "desktop": (1440, DEFAULT_FONT_PX),
}
PHONE: async_api.ViewportSize = {"width": 375, "height": 812}


@pytest.fixture
async def mocked(site: RecordedSite, new_page: NewPage) -> MockedPage:
    page = await new_page(viewport=PHONE, timezone_id="America/Bogota", reduced_motion="reduce")
    return MockedPage(page, site)


@pytest.mark.parametrize("state", STATES)
async def test_a_page_state_has_enough_contrast_and_fits_every_layout(mocked: MockedPage, state: str) -> None:
    page, problems = mocked.page, []
    await page.set_viewport_size(PHONE)
    await STATES[state](mocked)
    devtools = await page.context.new_cdp_session(page)
    for name, (width, size_px) in LAYOUTS.items():
        await page.set_viewport_size({"width": width, "height": PHONE["height"]})
        await devtools.send("Page.setFontSizes", {"fontSizes": {"standard": size_px}})
        problems += [f"{name}: {problem}" for problem in await layout_problems(page)]
    await devtools.send("Page.setFontSizes", {"fontSizes": {"standard": DEFAULT_FONT_PX}})
    await page.set_viewport_size(PHONE)
    page_height_px = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": PHONE["width"], "height": page_height_px})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        problems += [f"{scheme}: {problem}" for problem in [*await contrast_problems(page), *await axe_problems(page)]]
    await page.emulate_media(color_scheme="light")
    await devtools.detach()
    assert problems == [], "\n".join(problems)
