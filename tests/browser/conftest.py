"""Chromium with the screen of a phone, and an event to wait for."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from playwright import async_api

from tests.browser.steps import WaitingEvent
from tests.support.running.browser import CHROMIUM, CHROMIUM_ARGS, launched_chromium
from tests.support.running.suite import RunningSuite


@pytest.fixture
def page() -> Iterator[Any]:
    """A phone's page. An error of a script or a violation of the content security policy fails the test."""
    errors: list[str] = []

    def record_error(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    with launched_chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB", has_touch=True)
        page = context.new_page()
        page.on("console", record_error)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        yield page
    assert errors == []


@pytest.fixture
async def chromium() -> AsyncIterator[Any]:
    """Chromium under Playwright's asynchronous API."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        await browser.close()


@pytest.fixture
def event(suite: RunningSuite) -> WaitingEvent:
    return WaitingEvent(suite)
