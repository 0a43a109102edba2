"""The map shows other fans' holds as they happen, also without a stream, and says in words which seat was taken."""

import re
from typing import Any

from playwright import sync_api

from shared.rules import seat_codes
from tests.browser.hall.steps import (
    AVAILABLE,
    IN_A_BASKET,
    another_fan,
    cursor,
    expect_cursor,
    open_hall,
    open_section,
    pixels,
    until_painted,
)
from tests.browser.steps import CALL_TIMEOUT_MS, expect_connection
from tests.support.running.suite import RunningSuite
from tests.support.wait import until

SEATS = 100  # of the event of `open_hall`
STATE = re.compile(r"/map/state$")


def seat_id(page: Any) -> str:
    """The seat of section A that the cursor stands on."""
    row, number = re.findall(r"\d+", cursor(page).get_attribute("aria-label").split(":")[1])[:2]
    return f"A-{row}-{number}"


def test_another_fans_hold_appears_and_what_is_given_back_reappears(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    open_section(page, "A")
    expect_cursor(page, "Block A: Row 1", AVAILABLE)
    free = pixels(page)
    with another_fan(suite, event_id) as other:
        reservation_id = other.hold(seat_id(page))
        expect_cursor(page, IN_A_BASKET)
        held = until_painted(page, free)
        other.give_back(reservation_id)
        expect_cursor(page, AVAILABLE)
        assert until_painted(page, held) == free


def test_a_seat_that_somebody_else_takes_is_explained_in_words(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    open_section(page, "A")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    with another_fan(suite, event_id) as other:
        name = page.locator("#basket-list").inner_text()
        other.hold(seat_id(page))
        sync_api.expect(page.locator("#trouble-text")).to_have_text(f"Somebody was faster: {name}. Please pick again.")
    sync_api.expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")
    expect_cursor(page, IN_A_BASKET)


def test_an_own_hold_is_never_explained_as_somebody_elses(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    open_section(page, "A")
    page.keyboard.press("Enter")
    answers: list[tuple[Any, Any]] = []
    page.route("**/reservations", lambda route: answers.append((route, route.fetch())))
    page.locator("#hold").click()
    until(lambda: page.evaluate("0") or answers, what="the hold")
    with another_fan(suite, event_id) as other:
        other.hold("A-1-1")
        cursor(page).focus()
        page.keyboard.press("Home")
        expect_cursor(page, "Row 1, seat 1,", IN_A_BASKET)  # so the own hold was heard, too
    sync_api.expect(page.locator("#trouble")).to_be_hidden()
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    [(route, answer)] = answers
    route.fulfill(response=answer)
    sync_api.expect(page.locator("#held")).to_be_visible()


def test_without_a_stream_the_map_asks_for_the_states(page: Any, suite: RunningSuite) -> None:
    page.route("**/sections/updates*", lambda route: route.abort())
    event_id = open_hall(page, suite)
    expect_connection(page, "polling")
    open_section(page, "A")
    expect_cursor(page, AVAILABLE)
    with another_fan(suite, event_id) as other:
        other.hold(seat_id(page))
        expect_cursor(page, IN_A_BASKET)


def test_what_happened_while_the_stream_was_cut_is_seen_afterwards(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    open_section(page, "A")
    expect_cursor(page, AVAILABLE)
    seat = seat_id(page)
    page.context.set_offline(True)
    with another_fan(suite, event_id) as other:
        other.hold(seat)
        expect_cursor(page, AVAILABLE)
        page.context.set_offline(False)
        expect_cursor(page, IN_A_BASKET)


def test_a_hall_that_has_other_seats_by_now_leaves_the_list(page: Any, suite: RunningSuite) -> None:
    asked: list[Any] = []
    page.route("**/sections/updates*", lambda route: route.abort())
    page.route(STATE, lambda route: asked.append(route))
    open_hall(page, suite)
    until(lambda: page.evaluate("0") or asked, what="a request for the states")
    body = seat_codes.encode_state(1, 20, bytes(SEATS + 4))
    asked[0].fulfill(body=body, content_type="application/octet-stream")
    sync_api.expect(page.locator("#hall")).to_be_hidden(timeout=CALL_TIMEOUT_MS)
    page.locator("#section-A button").click()
    sync_api.expect(page.locator("#seats .seat")).to_have_count(60)
