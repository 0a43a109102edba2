"""A browser that runs no scripts."""

from tests.browser.plain.conftest import plain  # noqa: F401 - a fixture
