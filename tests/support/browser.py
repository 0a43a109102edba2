"""Chromium with the screen of a phone, and an event to wait for."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import async_api, sync_api

from tests.browser.steps import WaitingEvent
from tests.support.programs import find_program
from tests.support.running.suite import RunningSuite

LAUNCH: dict[str, Any] = {"executable_path": find_program("chromium"), "args": ["--no-sandbox"]}


@pytest.fixture(scope="module")
def playwright() -> Iterator[sync_api.Playwright]:
    """Of a module and not of the session: asynchronous tests cannot run while it is open."""
    with sync_api.sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playwright: sync_api.Playwright) -> Iterator[sync_api.Browser]:
    browser = playwright.chromium.launch(**LAUNCH)
    yield browser
    browser.close()


@pytest.fixture
def page(browser: sync_api.Browser) -> Iterator[Any]:
    """A phone's page. An error of a script or a violation of the content security policy fails the test."""
    errors: list[str] = []

    def record_error(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB", has_touch=True)
    page = context.new_page()
    page.on("console", record_error)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def cookieless(playwright: sync_api.Playwright, tmp_path: Path) -> Iterator[Any]:
    """A page of a browser whose settings block cookies."""
    (tmp_path / "Default").mkdir()
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(blocked))
    context = playwright.chromium.launch_persistent_context(tmp_path, **LAUNCH)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Any]:
    """Chromium under Playwright's asynchronous API, once a worker: tests open contexts of their own."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(**LAUNCH)
        yield browser
        await browser.close()


@pytest.fixture
def event(suite: RunningSuite) -> WaitingEvent:
    return WaitingEvent(suite)
