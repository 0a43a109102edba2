"""The console's pages in Chromium, signed in. A script's error or a violation of the policy fails the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from playwright import async_api

from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

DESKTOP, PHONE, WALL = (1440, 900), (390, 844), (1920, 1080)
FIRST_FIGURES_MS = 15_000
FAKE_STREAM = """
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor() { super(); window.stream = this; }
  close() {}
};
window.send = (name, data) => window.stream.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
"""
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
        await page.locator("main").first.wait_for(timeout=FIRST_FIGURES_MS)
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


async def fake_stream(page: async_api.Page) -> dict[str, Any]:
    """Loads the page again with a stream that brings what `window.send(name, data)` is given; its snapshot."""
    snapshot: dict[str, Any] = await page.evaluate(
        """() => new Promise((found) => {
            const stream = new EventSource("/console/api/events/arena-2026/stream");
            stream.addEventListener("snapshot", (event) => { stream.close(); found(JSON.parse(event.data)); });
        })"""
    )
    await page.add_init_script(FAKE_STREAM)
    await page.reload()

    async def is_streaming() -> bool:
        return bool(await page.evaluate("!!window.stream"))

    await wait_until(is_streaming)
    await page.evaluate("snapshot => window.send('snapshot', snapshot)", snapshot)
    await page.locator("[data-tile]").first.wait_for()
    return snapshot
