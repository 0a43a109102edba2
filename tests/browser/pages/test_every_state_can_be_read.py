"""Every state of the fan pages is readable: enough contrast in light and dark, and nothing cut, covered or outside the
window with letters twice as large or on the narrowest screen.
"""

from collections.abc import Iterator

import pytest
from playwright import sync_api

from tests.browser.conftest import BARE
from tests.browser.reading import hard_to_read, misfits
from tests.browser.states import STATES, Stage
from tests.support.running.browser import CHROMIUM, NEEDS_CHROMIUM
from tests.support.running.suite import RunningSuite

pytestmark = NEEDS_CHROMIUM
USUAL_PX = 16
LAYOUTS = {
    "a desk, letters twice as large": (1280, 2 * USUAL_PX),
    "a phone, letters twice as large": (375, 2 * USUAL_PX),
    "the narrowest screen": (320, USUAL_PX),
}
PHONE: sync_api.ViewportSize = {"width": 375, "height": 812}


@pytest.fixture(scope="module")
def stage(suite: RunningSuite) -> Iterator[Stage]:
    """One browser for all states."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=BARE)
        context = browser.new_context(
            viewport=PHONE, locale="en-GB", timezone_id="America/Bogota", reduced_motion="reduce"
        )
        yield Stage(context.new_page(), suite)
        browser.close()


@pytest.mark.parametrize("state", STATES)
def test_a_state_has_enough_contrast_and_fits_however_it_is_looked_at(stage: Stage, state: str) -> None:
    page, wrong = stage.page, []
    page.set_viewport_size(PHONE)
    STATES[state](stage)
    letters = page.context.new_cdp_session(page)
    for name, (width, size_px) in LAYOUTS.items():
        page.set_viewport_size({"width": width, "height": PHONE["height"]})
        letters.send("Page.setFontSizes", {"fontSizes": {"standard": size_px}})
        wrong += [f"{name}: {what}" for what in misfits(page)]
    letters.send("Page.setFontSizes", {"fontSizes": {"standard": USUAL_PX}})
    page.set_viewport_size(PHONE)
    whole_px = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": PHONE["width"], "height": whole_px})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        wrong += [f"{scheme}: {what}" for what in hard_to_read(page)]
    page.emulate_media(color_scheme="light")
    letters.detach()
    assert wrong == [], "\n".join(wrong)
