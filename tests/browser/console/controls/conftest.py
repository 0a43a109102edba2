"""An operator's desk in Chromium. What a test says it presses must have been called by the pages."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Request

from tests.browser.console.conftest import Open
from tests.browser.console.desk import FLOOR, Desk, Row, Sit, row_of
from tests.support.running.suite import RunningSuite


@pytest.fixture
async def sit(suite: RunningSuite, open_page: Open, request: pytest.FixtureRequest) -> AsyncIterator[Sit]:
    """Seats an operator at a new event, or at one that is there; what the test presses must have been called."""
    called: set[Row] = set()

    def record(one: Request) -> None:
        if row := row_of(one):
            called.add(row)

    async def sit(event_id: str | None = None, **event: Any) -> Desk:
        event_id = event_id or await suite.open_event(**{"sections": FLOOR, **event})
        page = await open_page(suite, f"events/{event_id}")
        page.on("request", record)
        return Desk(page, suite, event_id)

    yield sit
    marker = request.node.get_closest_marker("presses")
    assert marker.args[0] <= called
