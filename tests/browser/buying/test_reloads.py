"""A page reloaded at any stage is where it was: nothing is lost, nothing is bought twice."""

import re
from typing import Any

from playwright import sync_api

from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    UPDATES,
    WaitingEvent,
    enter,
    expect_confirmed,
    hold,
    join_and_wait,
    pay,
    put_on_sale,
    select_ga_ticket,
)
from tests.support.running.suite import RunningSuite

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}


def test_waiting(page: Any, event: WaitingEvent) -> None:
    join_and_wait(page, event)
    number = page.locator("#join-seq").inner_text()
    page.reload()
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    assert page.locator("#join-seq").inner_text() == number


def test_choosing_holding_and_paying(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=[FLOOR])}")
    enter(page)
    page.reload()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    select_ga_ticket(page)
    hold(page)
    page.reload()
    sync_api.expect(page.locator("#held-tickets li")).to_have_count(1, timeout=CALL_TIMEOUT_MS)
    pay(page, "slow")
    page.reload()
    sync_api.expect(page.locator("#order")).to_have_attribute("data-face", "processing")
    expect_confirmed(page)
    page.reload()
    expect_confirmed(page)
    sync_api.expect(page.locator("#tickets li")).to_have_count(1)
    page.go_back()
    sync_api.expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)


def test_an_order_whose_answer_was_lost_is_found_after_a_reload(page: Any, suite: RunningSuite) -> None:
    """The first answer is cut; the page is reloaded before its second try."""
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=[FLOOR])}")
    enter(page)
    select_ga_ticket(page)
    hold(page)

    def cut(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/orders", cut, times=1)
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@example.org")
    with page.expect_event("requestfailed"):
        page.locator("#pay").click()
    page.reload()
    sync_api.expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    page.locator("#to-order").click()
    expect_confirmed(page)
    page.context.clear_cookies(name=re.compile("onsale_(pass|queue)_"))
    page.reload()
    expect_confirmed(page)


def test_choosing_goes_on_while_the_stream_is_cut(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=[FLOOR])}")
    enter(page)
    page.context.route(f"{UPDATES}*", lambda route: route.abort())
    page.reload()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    other = page.context.browser.new_context().new_page()
    other.goto(page.url)
    enter(other)
    select_ga_ticket(other)
    hold(other)
    other.context.close()
    sync_api.expect(page.locator("#section-GA1 .left")).to_have_text("49 of 50 left", timeout=20_000)
    select_ga_ticket(page)
    hold(page)
