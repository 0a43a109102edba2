"""A real browser with the screen of a phone."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from playwright import async_api, sync_api

from tests.support.running.browser import CHROMIUM

BARE = ["--no-sandbox"]


@pytest.fixture
def page() -> Iterator[Any]:
    """A phone's page. Anything a script or the content security policy complains about fails the test."""
    complaints: list[str] = []

    def heard(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            complaints.append(message.text)

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=BARE)
        context = browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB", has_touch=True)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        yield page
        browser.close()
    assert complaints == []


@pytest.fixture
async def chromium() -> AsyncIterator[Any]:
    """The same browser for tests that run on a loop."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=BARE)
        yield browser
        await browser.close()
