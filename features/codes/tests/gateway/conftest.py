from tests.gateway.conftest import app, browser, fan, inventory, queue, settings, state  # noqa: F401
