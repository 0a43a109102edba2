"""The console's pages in Chromium, signed in. A script's error or a violation of the policy fails the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any

import pytest
from playwright import async_api

from tests.support.running.suite import RunningSuite

AXE = resources.files("axe_playwright_python") / "axe.min.js"
DESKTOP, PHONE, WALL = (1440, 900), (390, 844), (1920, 1080)
FIRST_FIGURES_MS = 15_000
Open = Callable[..., Awaitable[async_api.Page]]


@pytest.fixture
async def open_page(chromium: Any) -> AsyncIterator[Open]:
    """Opens a page of the console: signed in by default, in a browser of its own."""
    errors: list[str] = []

    def record(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    async def open_page(
        suite: RunningSuite, path: str = "", *, size: tuple[int, int] = DESKTOP, scheme: str = "light",
        signed_in: bool = True, url: str | None = None,
    ) -> async_api.Page:  # fmt: skip
        (width, height), url = size, url or suite.url
        context = await chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB", reduced_motion="reduce"
        )
        if signed_in:
            answer = await context.request.post(f"{url}/console/session", data={"key": suite.admin_key})
            assert answer.ok, await answer.text()
        page: async_api.Page = await context.new_page()
        page.on("console", record)
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{url}/console/{path}")
        if path.startswith(("events/", "wall/")):
            await page.locator("[data-tile]").first.wait_for(timeout=FIRST_FIGURES_MS)
        return page

    yield open_page
    for context in chromium.contexts:
        await context.close()
    assert errors == []


def figure(page: async_api.Page, tile: str) -> async_api.Locator:
    """The large figure of a tile."""
    return page.locator(f"[data-tile='{tile}'] [data-figure]")
