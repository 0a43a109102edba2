"""When live updates do not get through, the page asks by itself, says so, and goes back to them."""

import time
from typing import Any

import httpx
import pytest
import redis
from playwright import sync_api

from tests.browser.test_a_person_buys_a_ticket import TURN_MS, Suite
from tests.support.browser import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM
UPDATES = "**/sections/updates"
BACK_MS = 25_000


class Event:
    """An open event where nobody is called yet."""

    def __init__(self, suite: Suite) -> None:
        self.suite, self.event_id = suite, f"stream-{time.time_ns():x}"
        body = {
            "event_id": self.event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
            "starts_at": "2030-01-01T20:00:00Z", "room": {"max_active": 0},
            "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}],
        }  # fmt: skip
        for service in ("inventory", "queue"):
            self.operate("PUT", f"/admin/{service}/events/{self.event_id}", body)
        self.operate("POST", f"/admin/queue/events/{self.event_id}/room/open", {})

    def operate(self, method: str, path: str, body: Any) -> None:
        headers = {"authorization": f"Bearer {self.suite.admin_key}"}
        httpx.request(method, f"{self.suite.url}{path}", json=body, headers=headers).raise_for_status()

    def say(self, message: str) -> None:
        at = f"/admin/queue/events/{self.event_id}/room/message"
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


def test_a_page_without_streams_asks_and_returns_to_them(page: Any, event: Event) -> None:
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
