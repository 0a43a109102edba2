"""Every state of the fan pages is readable: enough contrast in light and dark mode, no text cut, covered or outside the
window with fonts twice as large or on the narrowest screen, and nothing that axe finds.
"""

import pytest
from playwright import sync_api

from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.states import STATES, MockedPage
from tests.support.running.suite import RunningSuite

DEFAULT_FONT_PX = 16
LAYOUTS = {
    "desktop, fonts twice as large": (1280, 2 * DEFAULT_FONT_PX),
    "phone, fonts twice as large": (375, 2 * DEFAULT_FONT_PX),
    "narrowest screen": (320, DEFAULT_FONT_PX),
    "desktop": (1440, DEFAULT_FONT_PX),
}
PHONE: sync_api.ViewportSize = {"width": 375, "height": 812}


@pytest.fixture(scope="module")
def mocked(suite: RunningSuite, browser: sync_api.Browser) -> MockedPage:
    """One page for all states."""
    context = browser.new_context(viewport=PHONE, locale="en-GB", timezone_id="America/Bogota", reduced_motion="reduce")
    return MockedPage(context.new_page(), suite)


@pytest.mark.parametrize("state", STATES)
def test_a_page_state_has_enough_contrast_and_fits_every_layout(mocked: MockedPage, state: str) -> None:
    page, problems = mocked.page, []
    page.set_viewport_size(PHONE)
    STATES[state](mocked)
    devtools = page.context.new_cdp_session(page)
    for name, (width, size_px) in LAYOUTS.items():
        page.set_viewport_size({"width": width, "height": PHONE["height"]})
        devtools.send("Page.setFontSizes", {"fontSizes": {"standard": size_px}})
        problems += [f"{name}: {problem}" for problem in layout_problems(page)]
    devtools.send("Page.setFontSizes", {"fontSizes": {"standard": DEFAULT_FONT_PX}})
    page.set_viewport_size(PHONE)
    page_height_px = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": PHONE["width"], "height": page_height_px})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        problems += [f"{scheme}: {problem}" for problem in [*contrast_problems(page), *axe_problems(page)]]
    page.emulate_media(color_scheme="light")
    devtools.detach()
    assert problems == [], "\n".join(problems)
