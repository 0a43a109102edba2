"""An operator's desk in Chromium. What a test says it presses must have been called by the pages, with a reason that
stands in the audit log.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Request, Response

from tests.browser.console.conftest import Open
from tests.browser.console.desk import FLOOR, READS_ONLY, Desk, Row, Sit, reason_of, row_of
from tests.support.running.suite import RunningSuite


@pytest.fixture
async def sit(suite: RunningSuite, open_page: Open, request: pytest.FixtureRequest) -> AsyncIterator[Sit]:
    """Seats an operator at a new event, or at one that is there; what the test presses must have been called."""
    called: set[Row] = set()
    reasons: dict[Row, set[str | None]] = {}
    desks: list[Desk] = []

    def record(one: Request) -> None:
        if row := row_of(one):
            called.add(row)

    def record_done(answer: Response) -> None:
        row = row_of(answer.request)
        if row and answer.ok and (reason := reason_of(answer.request)):
            reasons.setdefault(row, set()).add(reason)

    async def sit(event_id: str | None = None, **event: Any) -> Desk:
        event_id = event_id or await suite.open_event(**{"sections": FLOOR, **event})
        page = await open_page(suite, f"events/{event_id}")
        page.on("request", record)
        page.on("response", record_done)
        desks.append(Desk(page, suite, event_id))
        return desks[-1]

    yield sit
    marker = request.node.get_closest_marker("presses")
    pressed: set[Row] = marker.args[0]
    assert pressed <= called
    assert pressed - READS_ONLY <= reasons.keys(), "each write takes a reason"
    logged = {reason for desk in desks for _, _, reason in await desk.log()}
    assert set().union(*reasons.values()) <= logged
