"""Chromium for tests: its path, and a context manager that launches it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright import sync_api

from tests.support.programs import find_program

CHROMIUM = find_program("chromium")
CHROMIUM_ARGS = ["--no-sandbox"]


@contextmanager
def launched_chromium() -> Iterator[Any]:
    """Chromium under Playwright's synchronous API."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()
