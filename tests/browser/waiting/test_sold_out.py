"""Sold out is no dead end: the page says what may happen, and goes on by itself when tickets come back."""

import re
from typing import Any

from playwright import sync_api

from tests.browser.states import MockedPage, frame, place, show_event
from tests.support.running.suite import RunningSuite

SOON = {"poll_after_ms": 300}


def test_a_fan_in_line_goes_on_when_tickets_come_back(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("sold_out", **SOON), place("waiting", **SOON))
    sync_api.expect(page.locator("#ended-text")).to_have_text(re.compile("Should some come back"))
    sync_api.expect(page.locator("#ended").get_by_role("link", name="All events")).to_be_visible()
    mocked.answer({
        "GET /events/EVENT/queue": frame("open", **SOON), "GET /events/EVENT/queue/status": place("waiting", **SOON),
    })  # fmt: skip
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=20_000)


def test_the_door_opens_again_when_tickets_come_back(page: Any, suite: RunningSuite) -> None:
    mocked = MockedPage(page, suite)
    show_event(mocked, frame("sold_out", **SOON))
    sync_api.expect(page.locator("#lobby-text")).to_have_text(re.compile("Should some come back"))
    sync_api.expect(page.locator("#join")).to_be_hidden()
    mocked.answer({"GET /events/EVENT/queue": frame("open", **SOON)})
    sync_api.expect(page.locator("#join")).to_be_visible(timeout=20_000)
