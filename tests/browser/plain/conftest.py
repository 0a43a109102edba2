"""A browser that runs no scripts."""

from collections.abc import Iterator
from typing import Any

import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "locale": "en-GB"}


@pytest.fixture
def plain(browser: Any) -> Iterator[Any]:
    """A phone's page that runs no scripts."""
    context = browser.new_context(**PHONE, java_script_enabled=False)
    yield context.new_page()
    context.close()
