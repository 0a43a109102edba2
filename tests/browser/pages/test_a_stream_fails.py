"""When live updates fail, the page polls, says so, and returns to the stream."""

from typing import Any

import pytest
import redis
from playwright import sync_api

from tests.browser.steps import TURN_MS, Suite, operator, put_on_sale
from tests.support.running.browser import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM
UPDATES = "**/sections/updates"
BACK_MS = 25_000


class Event:
    """An open event where nobody is called yet."""

    def __init__(self, suite: Suite) -> None:
        floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
        self.suite, self.event_id = suite, put_on_sale(suite, room={"max_active": 0}, sections=[floor])

    def operate(self, method: str, path: str, body: Any) -> None:
        with operator(self.suite) as admin:
            admin.request(method, path, json=body).raise_for_status()

    def say(self, message: str) -> None:
        at = f"/admin/events/{self.event_id}/room/message"
        self.operate("POST", at, {"message": message, "reason": "test"})


@pytest.fixture
def event(suite: Suite) -> Event:
    return Event(suite)


def stand_in_line(page: Any, event: Event) -> None:
    page.goto(f"{event.suite.url}/e/{event.event_id}")
    page.locator("#join").click()
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=TURN_MS)


def is_(page: Any, state: str) -> None:
    sync_api.expect(page.locator("#connection")).to_have_attribute("data-state", state, timeout=BACK_MS)


def test_a_page_without_streams_polls_and_returns_to_them(page: Any, event: Event) -> None:
    page.route(UPDATES, lambda route: route.abort())
    stand_in_line(page, event)
    is_(page, "polling")
    event.say("Doors at eight")
    sync_api.expect(page.locator("#notice")).to_have_text("Doors at eight", timeout=BACK_MS)
    is_(page, "polling")
    page.unroute(UPDATES)
    is_(page, "live")


def test_a_page_says_that_pubsub_is_away_and_when_it_is_back(page: Any, event: Event, suite: Any) -> None:
    stand_in_line(page, event)
    is_(page, "live")
    engine = redis.Redis.from_url(suite.engines["redis_url"])
    try:
        engine.execute_command("ACL", "SETUSER", "default", "-subscribe", "-ssubscribe", "-psubscribe")
        engine.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        sync_api.expect(page.locator("#notice")).to_contain_text("Live updates are interrupted", timeout=BACK_MS)
        is_(page, "degraded")
        engine.execute_command("ACL", "SETUSER", "default", "+subscribe", "+ssubscribe", "+psubscribe")
        sync_api.expect(page.locator("#notice")).to_be_hidden(timeout=BACK_MS)
        is_(page, "live")
    finally:
        engine.execute_command("ACL", "SETUSER", "default", "+@all")
        engine.close()
