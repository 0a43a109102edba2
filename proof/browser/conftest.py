"""The recorded site for tests of pages alone."""

from tests.browser.recorded.site import site, site_server

__all__ = ["site", "site_server"]
