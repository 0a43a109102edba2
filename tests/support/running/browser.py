"""Chromium for tests: its path, the marks of tests that need it, and a context manager that launches it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", shutil.which("chromium")) if path and Path(path).exists()), None
)
CHROMIUM_ARGS = ["--no-sandbox"]
NEEDS_CHROMIUM = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@contextmanager
def launched_chromium() -> Iterator[Any]:
    """Chromium under Playwright's synchronous API."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()
