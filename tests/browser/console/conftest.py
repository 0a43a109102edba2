"""The console's pages in Chromium, signed in. A script's error or a violation of the policy fails the test."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright import async_api

from tests.browser.console.recorded import FAKE_STREAM, URL, Alone, RecordedDesk, Recording
from tests.browser.readability import AXE
from tests.support.running.suite import RunningSuite

DESKTOP, PHONE, WALL = (1440, 900), (390, 844), (1920, 1080)
FIRST_FIGURES_MS = 15_000
Open = Callable[..., Awaitable[async_api.Page]]
OpenAlone = Callable[..., Awaitable[RecordedDesk]]
NewContext = Callable[..., Awaitable[async_api.BrowserContext]]


@asynccontextmanager
async def contexts(chromium: Any) -> AsyncIterator[NewContext]:
    """Browsers of their own; what their pages say on the console fails the test."""
    opened: list[async_api.BrowserContext] = []
    errors: list[str] = []

    def record(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    async def new(size: tuple[int, int] = DESKTOP, scheme: str = "light") -> async_api.BrowserContext:
        width, height = size
        context: async_api.BrowserContext = await chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB", reduced_motion="reduce",
            timezone_id="UTC",
        )  # fmt: skip
        context.on("console", record)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        opened.append(context)
        return context

    yield new
    for context in opened:
        await context.close()
    assert errors == []


@pytest.fixture
async def open_page(chromium: Any) -> AsyncIterator[Open]:
    """Opens a page of a running console: signed in by default, in a browser of its own."""
    async with contexts(chromium) as new:

        async def open_page(
            suite: RunningSuite, path: str = "", *, size: tuple[int, int] = DESKTOP, scheme: str = "light",
            signed_in: bool = True, url: str | None = None,
            prepare: Callable[[async_api.Page], Awaitable[object]] | None = None,
        ) -> async_api.Page:  # fmt: skip
            context, url = await new(size, scheme), url or suite.url
            if signed_in:
                answer = await context.request.post(f"{url}/console/session", data={"key": suite.admin_key})
                assert answer.ok, await answer.text()
            page = await context.new_page()
            if prepare:
                await prepare(page)
            await page.goto(f"{url}/console/{path}")
            await first_figures(page, path if signed_in else "")
            return page

        yield open_page


@pytest.fixture
async def alone(chromium: Any) -> AsyncIterator[OpenAlone]:
    """Opens a page of the console on a recording. `{event}` in its path is the recorded event; its stream begins with
    the snapshot of this number.
    """
    desks: list[RecordedDesk] = []
    async with contexts(chromium) as new:

        async def alone(
            name: str = "every_drawer_is_read", path: str = "events/{event}", *, size: tuple[int, int] = DESKTOP,
            scheme: str = "light", heard: int = 0,
            prepare: Callable[[async_api.Page, Alone], Awaitable[object]] | None = None,
        ) -> RecordedDesk:  # fmt: skip
            found = Alone(Recording.load(name))
            context = await new(size, scheme)
            first = json.dumps(found.recording.heard[heard])
            await context.add_init_script(f"window.first = {first};{FAKE_STREAM}")
            await context.route("**/*", found.handle)
            page = await context.new_page()
            if prepare:
                await prepare(page, found)
            path = path.format(event=found.recording.event_id)
            await page.goto(f"{URL}/console/{path}")
            await first_figures(page, path)
            desks.append(RecordedDesk(page, found))
            return desks[-1]

        yield alone
    for desk in desks:
        assert desk.alone.faults == []


async def first_figures(page: async_api.Page, path: str) -> None:
    await page.locator("main").first.wait_for(timeout=FIRST_FIGURES_MS)
    if path.startswith(("events/", "wall/")):
        await page.locator("[data-tile]").first.wait_for(timeout=FIRST_FIGURES_MS)


def figure(page: async_api.Page, tile: str) -> async_api.Locator:
    """The large figure of a tile."""
    return page.locator(f"[data-tile='{tile}'] [data-figure]")


async def violations(page: async_api.Page, *rules: str) -> list[Any]:
    """What axe complains about, by these rules or by all: the rule, and the first elements."""
    await page.evaluate(AXE)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = await page.evaluate("options => axe.run(options)", options)
    return [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found["violations"]]
