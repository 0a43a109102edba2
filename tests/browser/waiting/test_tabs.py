"""Several tabs of one fan: one stream and one poll for all of them, and none is out of date."""

from typing import Any

from playwright import sync_api

from tests.browser.steps import CALL_TIMEOUT_MS, WaitingEvent, expect_connection, join_and_wait

OTHER_TAB_MS = 15_000
SETTLED_MS, WATCHED_MS = 3_000, 6_000


class Requests:
    """What a page has asked since it was made."""

    def __init__(self, page: Any) -> None:
        self.urls: list[str] = []
        page.on("request", lambda request: self.urls.append(request.url))

    def count(self, end: str) -> int:
        return sum(url.endswith(end) for url in self.urls)


def two_tabs(page: Any, event: WaitingEvent) -> tuple[Any, Requests, Requests]:
    """The first tab leads; the second is open beside it."""
    first = Requests(page)
    join_and_wait(page, event)
    expect_connection(page, "live")
    other = page.context.new_page()
    second = Requests(other)
    other.goto(page.url)
    sync_api.expect(other.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    expect_connection(other, "live")
    return other, first, second


def poll_each_second(route: Any) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | {"poll_after_ms": 1_000})


def test_two_tabs_have_one_stream_and_both_are_live(page: Any, event: WaitingEvent) -> None:
    other, first, second = two_tabs(page, event)
    event.set_message("Doors at eight")
    for tab in (page, other):
        sync_api.expect(tab.locator("#notice")).to_have_text("Doors at eight", timeout=OTHER_TAB_MS)
    assert (first.count("/updates"), second.count("/updates")) == (1, 0)


def test_one_tab_polls_for_both(page: Any, event: WaitingEvent) -> None:
    page.context.route("**/queue/status", poll_each_second)
    _, first, second = two_tabs(page, event)
    page.wait_for_timeout(SETTLED_MS)
    before = first.count("/status"), second.count("/status")
    page.wait_for_timeout(WATCHED_MS)
    asked = first.count("/status") - before[0], second.count("/status") - before[1]
    assert asked[0] > 0
    assert asked[1] == 0


def test_the_other_tab_takes_over_when_the_leading_one_is_closed(page: Any, event: WaitingEvent) -> None:
    other, _, second = two_tabs(page, event)
    page.goto("about:blank")
    expect_connection(other, "live")
    event.set_message("Doors at nine")
    sync_api.expect(other.locator("#notice")).to_have_text("Doors at nine", timeout=OTHER_TAB_MS)
    assert second.count("/updates") == 1


def test_leaving_in_one_tab_is_leaving_in_all(page: Any, event: WaitingEvent) -> None:
    other, *_ = two_tabs(page, event)
    page.locator("#leave").click()
    for tab in (page, other):
        sync_api.expect(tab.locator("#ended-title")).to_have_text("You left the line", timeout=OTHER_TAB_MS)


def test_joining_in_one_tab_is_joining_in_all(page: Any, event: WaitingEvent) -> None:
    other = page.context.new_page()
    other.goto(f"{event.suite.url}/e/{event.event_id}")
    sync_api.expect(other.locator("#join")).to_be_visible()
    join_and_wait(page, event)
    sync_api.expect(other.locator("#waiting")).to_be_visible(timeout=OTHER_TAB_MS)
    assert other.locator("#join-seq").inner_text() == page.locator("#join-seq").inner_text()


def test_without_locks_each_tab_has_its_own_stream(page: Any, event: WaitingEvent) -> None:
    page.context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
    other, first, second = two_tabs(page, event)
    event.set_message("Doors at ten")
    for tab in (page, other):
        sync_api.expect(tab.locator("#notice")).to_have_text("Doors at ten", timeout=OTHER_TAB_MS)
    assert (first.count("/updates"), second.count("/updates")) == (1, 1)
