"""The map shows other fans' holds as they happen, also without a stream, and says in words which seat was taken."""

import base64
import json
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
from tests.browser.steps import expect_connection, put_on_sale
from tests.support.running.suite import RunningSuite

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
    open_hall(page, suite)
    open_section(page, "A")
    page.keyboard.press("Enter")

    page.evaluate("""() => { globalThis.told = []; new MutationObserver(() => told.push(
        document.getElementById("trouble-text").textContent)).observe(document.getElementById("trouble-text"),
        {childList: true, characterData: true, subtree: true}); }""")
    with page.expect_response(re.compile("/reservations$")):
        page.locator("#hold").click()
    sync_api.expect(page.locator("#held")).to_be_visible()
    assert [text for text in page.evaluate("told") if text] == []


def test_without_a_stream_the_map_asks_for_the_states(page: Any, suite: RunningSuite) -> None:
    page.route("**/sections/updates*", lambda route: route.abort())
    event_id = open_hall(page, suite)
    expect_connection(page, "polling")
    open_section(page, "A")
    expect_cursor(page, AVAILABLE)
    with another_fan(suite, event_id) as other:
        other.hold(seat_id(page))
        expect_cursor(page, IN_A_BASKET)


def test_a_missed_frame_is_healed_by_the_state(page: Any, suite: RunningSuite) -> None:
    codes = bytes(SEATS)
    first = {"v": 10, "s": base64.b64encode(seat_codes.pack(codes)).decode()}
    later = {"v": 16, "after": 15, "d": base64.b64encode(seat_codes.encode_changes(codes, [3])).decode()}
    stream = "".join(f"event: seats\ndata: {json.dumps(data)}\n\n" for data in (first, later)) + "retry: 600000\n\n"
    missed = bytearray(codes)
    missed[:60] = bytes([seat_codes.SOLD]) * 60
    page.route(
        "**/sections/updates?seats=*", lambda route: route.fulfill(body=stream, content_type="text/event-stream")
    )
    page.route(STATE, lambda route: route.fulfill(
        body=seat_codes.encode_state(1, 20, bytes(missed)), content_type="application/octet-stream",
    ))  # fmt: skip
    with page.expect_response(STATE):
        open_hall(page, suite)
    open_section(page, "A")
    expect_cursor(page, "sold$")


def test_a_hall_that_has_other_seats_by_now_leaves_the_list(page: Any, suite: RunningSuite) -> None:
    body = seat_codes.encode_state(1, 20, bytes(SEATS + 4))
    page.route("**/sections/updates*", lambda route: route.abort())
    page.route(STATE, lambda route: route.fulfill(body=body, content_type="application/octet-stream"))
    event_id = put_on_sale(suite, sections=[
        {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 5000},
    ])  # fmt: skip
    page.goto(f"{suite.url}/e/{event_id}")
    page.locator("#join").click()
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=30_000)
    sync_api.expect(page.locator("#hall")).to_be_hidden(timeout=30_000)
    page.locator("#section-A button").click()
    sync_api.expect(page.locator("#seats .seat")).to_have_count(10)
