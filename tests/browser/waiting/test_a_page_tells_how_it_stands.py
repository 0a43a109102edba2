"""What a page says of the connection and of the fan's place: never more than it knows, and why."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright import sync_api

from tests.browser.pages.test_a_stream_fails import UPDATES, Event, event, is_, stand_in_line
from tests.browser.steps import TURN_MS
from tests.support.running.browser import CHROMIUM, NEEDS_CHROMIUM

__all__ = ["event"]
pytestmark = NEEDS_CHROMIUM
LOOKS_AWAY = "() => { window.away = true; document.dispatchEvent(new Event('visibilitychange')); }"
LOOKS_AGAIN = "() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }"
MAY_LOOK_AWAY = """
    window.away = false;
    Object.defineProperty(document, "hidden", { get: () => window.away });
    Object.defineProperty(document, "visibilityState", { get: () => (window.away ? "hidden" : "visible") });
"""


def test_a_page_without_a_network_says_so_and_how_old_its_figures_are(page: Any, event: Event) -> None:
    stand_in_line(page, event)
    is_(page, "live")
    page.context.set_offline(True)
    is_(page, "offline")
    sync_api.expect(page.locator("#connection-text")).to_contain_text("As of ")
    sync_api.expect(page.locator("#line-as-of")).to_be_visible()
    page.context.set_offline(False)
    is_(page, "live")
    sync_api.expect(page.locator("#line-as-of")).to_be_hidden()


def test_a_silent_stream_and_unanswered_questions_are_no_live_page(page: Any, event: Event) -> None:
    page.clock.install()
    stand_in_line(page, event)
    is_(page, "live")
    page.route("**/events/**", lambda route: None)
    page.clock.fast_forward(90_000)
    page.clock.run_for(90_000)
    is_(page, "offline")
    page.unroute("**/events/**")


def test_a_page_whose_stream_was_rejected_says_so_and_polls(page: Any, event: Event) -> None:
    told = 'retry: 60000\nevent: turned_away\ndata: {"why": "lag"}\n\n'
    page.route(UPDATES, lambda route: route.fulfill(body=told, content_type="text/event-stream"))
    stand_in_line(page, event)
    is_(page, "crowded")
    event.say("Doors at eight")
    sync_api.expect(page.locator("#notice")).to_have_text("Doors at eight", timeout=15_000)
    is_(page, "crowded")


def test_a_fan_who_looks_elsewhere_is_rung_for_and_let_in_when_they_look(page: Any, event: Event) -> None:
    page.add_init_script(MAY_LOOK_AWAY)
    stand_in_line(page, event)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/pass") else None)
    page.evaluate(LOOKS_AWAY)
    event.operate("PATCH", f"/admin/events/{event.event_id}/room", {"max_active": 5, "reason": "test"})
    sync_api.expect(page.locator("#called")).to_be_visible(timeout=TURN_MS)
    sync_api.expect(page.locator("#called-window")).to_contain_text("Time to come in: 1:")
    page.wait_for_function("document.title.includes('your turn') || document.title.includes('●')")
    assert asked == [], "the session begins when they are there"
    page.evaluate(LOOKS_AGAIN)
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=TURN_MS)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "title"),
    [
        ({"status": "expired", "why": "session"}, "Your time to choose has run out"),
        ({"status": "expired", "why": "unclaimed"}, "Your turn has passed"),
        ({"status": "left"}, "You left the line"),
    ],
    ids=["session", "unclaimed", "left"],
)
def test_an_end_is_told_with_its_own_cause(page: Any, event: Event, status: dict[str, str], title: str) -> None:
    stand_in_line(page, event)
    told = {"join_seq": 1, "position_in_queue": 0, "estimated_wait_time": 0, "head_seq": 1, "poll_after_ms": 1000}
    body = json.dumps({**told, "message": None, "estimate_changed": None, **status})
    page.route("**/queue/status", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.reload()
    sync_api.expect(page.locator("#ended-title")).to_have_text(title)


def test_those_who_wait_in_a_draining_room_are_told(page: Any, event: Event) -> None:
    stand_in_line(page, event)
    event.operate("POST", f"/admin/events/{event.event_id}/room/drain", {"reason": "test"})
    sync_api.expect(page.locator("#notice")).to_contain_text("takes nobody new", timeout=TURN_MS)


@pytest.fixture
def cookieless(tmp_path: Path) -> Iterator[Any]:
    """A browser whose owner allows no cookies."""
    (tmp_path / "Default").mkdir()
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(blocked))
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path, executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield context.new_page()
        context.close()


def places(event: Event) -> int:
    line = httpx.get(f"{event.suite.url}/events/{event.event_id}/queue").json()
    return int(line["tail_seq"])


def test_without_cookies_no_place_is_taken_and_the_fan_is_told_why(cookieless: Any, event: Event) -> None:
    cookieless.goto(f"{event.suite.url}/e/{event.event_id}")
    cookieless.locator("#join").click()
    sync_api.expect(cookieless.locator("#trouble-text")).to_contain_text("keeps no cookies")
    assert places(event) == 0


def test_a_place_whose_cookie_does_not_stay_is_given_back_at_once(page: Any, event: Event) -> None:
    def without_cookie(route: Any) -> None:
        answer = route.fetch()
        headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
        route.fulfill(response=answer, headers=headers)
        page.context.clear_cookies()

    left: list[int] = []
    page.on("response", lambda said: left.append(said.status) if said.request.method == "DELETE" else None)
    page.route("**/queue", lambda route: without_cookie(route) if route.request.method == "POST" else route.fallback())
    page.goto(f"{event.suite.url}/e/{event.event_id}")
    page.locator("#join").click()
    sync_api.expect(page.locator("#trouble-text")).to_contain_text("keeps no cookies", timeout=TURN_MS)
    sync_api.expect(page.locator("#lobby")).to_be_visible()
    assert left == [204]
