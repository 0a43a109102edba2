"""Sold out is no dead end: the page says what may happen, and goes on by itself when tickets come back."""

import re
from typing import Any

from playwright.async_api import expect

from tests.browser.recorded.site import RecordedSite
from tests.browser.states import MockedPage, frame, place, show_event

SOON, ASKS_WITHIN_MS = {"poll_after_ms": 300}, 5_000


async def test_a_fan_in_line_goes_on_when_tickets_come_back(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("sold_out", **SOON), place("waiting", **SOON))
    await expect(page.locator("#ended-text")).to_have_text(re.compile("Should some come back"))
    await expect(page.locator("#ended").get_by_role("link", name="All events")).to_be_visible()
    mocked.answer({
        "GET /events/EVENT/queue": frame("open", **SOON), "GET /events/EVENT/queue/status": place("waiting", **SOON),
    })  # fmt: skip
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await expect(page.locator("#waiting")).to_be_visible()


async def test_the_door_opens_again_when_tickets_come_back(page: Any, site: RecordedSite) -> None:
    await page.clock.install()
    mocked = MockedPage(page, site)
    await show_event(mocked, frame("sold_out", **SOON))
    await expect(page.locator("#lobby-text")).to_have_text(re.compile("Should some come back"))
    await expect(page.locator("#join")).to_be_hidden()
    mocked.answer({"GET /events/EVENT/queue": frame("open", **SOON)})
    await page.clock.fast_forward(ASKS_WITHIN_MS)
    await expect(page.locator("#join")).to_be_visible()
