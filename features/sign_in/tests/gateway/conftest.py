"""The gateway's fixtures."""

from tests.gateway.conftest import app, browser, fan, inventory, publish_frame, queue, settings, state  # noqa: F401
