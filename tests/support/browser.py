"""Chromium, once a worker; each page of a test has a context of its own, with the screen of a phone.

Small pictures of every type, and files that are pictures and something else.
"""

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from playwright import async_api

from onsale import event_files
from tests.browser.steps import WaitingEvent
from tests.support.programs import find_program
from tests.support.running.suite import RunningSuite

CHROMIUM = find_program("chromium-headless-shell") or find_program("chromium")  # the first draws no windows
LAUNCH: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "locale": "en-GB"}
NewPage = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
async def playwright() -> AsyncIterator[async_api.Playwright]:
    async with async_api.async_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
async def chromium(playwright: async_api.Playwright) -> AsyncIterator[Any]:
    """Tests open contexts of their own: one costs thirty milliseconds, and shares nothing with another."""
    browser = await playwright.chromium.launch(**LAUNCH)
    yield browser
    await browser.close()


@pytest.fixture
async def new_page(chromium: Any) -> AsyncIterator[NewPage]:
    """Opens pages, each in a context of its own with these options; a phone's by default. An error of a script or a
    violation of the content security policy fails the test.
    """
    errors: list[str] = []
    contexts: list[Any] = []

    def record_error(message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    async def new_page(**options: Any) -> Any:
        context = await chromium.new_context(**PHONE | options)
        contexts.append(context)
        context.on("console", record_error)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("dialog", lambda dialog: dialog.accept())
        return await context.new_page()

    yield new_page
    for context in contexts:
        for page in context.pages:
            await page.unroute_all(behavior="ignoreErrors")  # a handler may still be at work
        await context.unroute_all(behavior="ignoreErrors")
        await context.close()
    assert errors == []


@pytest.fixture
async def page(new_page: NewPage) -> Any:
    """A phone's page."""
    return await new_page(has_touch=True)


@pytest.fixture
async def plain(new_page: NewPage) -> Any:
    """A phone's page that runs no scripts."""
    return await new_page(java_script_enabled=False)


@pytest.fixture
async def mouse(new_page: NewPage) -> Any:
    """A page on a wide screen with a mouse."""
    return await new_page(viewport={"width": 1440, "height": 900})


@pytest.fixture
async def cookieless(playwright: async_api.Playwright, tmp_path: Path) -> AsyncIterator[Any]:
    """A page of a browser whose settings block cookies; the program that draws no windows reads no settings."""
    (tmp_path / "Default").mkdir()
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(blocked))
    whole = {**LAUNCH, "executable_path": find_program("chromium")}
    context = await playwright.chromium.launch_persistent_context(tmp_path, **whole)
    yield await context.new_page()
    await context.close()


@pytest.fixture
async def event(suite: RunningSuite) -> WaitingEvent:
    return await WaitingEvent.of(suite)


WIDE = (40, 30)


def picture(kind: str, size: tuple[int, int] = WIDE, colour: str = "#0b5d52") -> bytes:
    """A picture of one colour, as `PNG`, `JPEG`, `WEBP` or `AVIF`."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


PNG, JPEG, WEBP, AVIF = (picture(kind) for kind in ("PNG", "JPEG", "WEBP", "AVIF"))
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 30"><path fill="#0b5d52" d="M0 0h40v30H0z"/></svg>'
LIVELY_SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30" onload="top.broken = 1">'
    b"<script>top.broken = 1</script></svg>"
)
PAGE = b"<!doctype html><script>top.broken = 1</script>"
BRAND = {"name": "Polar", "logo": "logo.svg", "accent": "#0b5d52", "picture": {"file": "hall.png", "alt": "The hall"}}


def write_event(folder: Path, event_id: str, brand: dict[str, Any] | None = None, *, logo: bytes = SVG) -> Path:
    """An event file with its pictures beside it."""
    event = {
        "event_id": event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z", "brand": brand or BRAND,
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
    }  # fmt: skip
    for name, content in {"logo.svg": logo, "hall.png": PNG}.items():
        (folder / name).write_bytes(content)
    path = folder / "event.yaml"
    path.write_text(yaml.safe_dump(event))
    return path


def pictures_of(path: Path) -> dict[str, bytes]:
    return event_files.pictures(path, event_files.read(path))
