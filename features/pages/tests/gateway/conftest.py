"""A gateway with the real queue; inventory and orders are a double."""

import pytest

from features.pages.gateway.plain_pages import FanPages
from features.pages.tests.shop import Shop
from tests.gateway.conftest import (  # noqa: F401 - fixtures
    app,
    browser,
    fan,
    inventory,
    publish_frame,
    queue,
    settings,
    state,
)
from tests.support.running.services import QueueService


@pytest.fixture
def pages(app) -> FanPages:  # noqa: F811
    return app.state.parts[FanPages]


@pytest.fixture
async def shop(pages: FanPages, queue: QueueService, monkeypatch: pytest.MonkeyPatch) -> Shop:  # noqa: F811
    """Inventory and orders of the pages of an event on sale."""
    await queue.open()
    shop = Shop()
    for each in (pages.events.reader, pages.catalogue):
        monkeypatch.setattr(each, "_shop", shop)
    return shop
