"""Seats chosen on the map: by touch, mouse, wheel, pinch, buttons and keys alone; the list shows the same."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api

from tests.browser.hall.steps import (
    another_fan,
    cursor,
    expect_cursor,
    open_hall,
    open_section,
    pixels,
    section,
    until_painted,
)
from tests.browser.steps import expect_confirmed, hold, pay
from tests.support.running.suite import RunningSuite

TARGET_PX = 24
BLOCKS = [
    {"section_id": f"S{n:02}", "name": f"Section {n}", "kind": "seated", "rows": 20, "seats_per_row": 25,
     "price_minor": 4000 + 1000 * (n % 4)}
    for n in range(40)
]  # fmt: skip


@pytest.fixture
def mouse(browser: sync_api.Browser) -> Iterator[Any]:
    """A page on a wide screen with a mouse."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB")
    yield context.new_page()
    context.close()


def middle(locator: Any) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def seat_px(page: Any) -> float:
    """The side of a seat, as far as it is larger than the least target."""
    width: float = cursor(page).bounding_box()["width"]
    return width


def tap(page: Any, x: float, y: float) -> None:
    page.touchscreen.tap(x, y)


def expect_picked(page: Any, count: str) -> None:
    sync_api.expect(page.locator("#basket-count")).to_have_text(count)


def test_a_fan_buys_two_seats_by_touch_on_a_phone(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    label = section(page, "A")
    label.scroll_into_view_if_needed()
    tap(page, *middle(label))
    sync_api.expect(page.locator("#hall-hint")).to_contain_text("Block A:")
    x, y = middle(cursor(page))
    if "nearer" in page.locator("#hall-hint").inner_text():
        tap(page, x, y)
    sync_api.expect(page.locator("#hall-hint")).to_have_text("Block A: Choose your seats.")
    assert seat_px(page) > TARGET_PX
    x, y = middle(cursor(page))
    tap(page, x, y)
    expect_picked(page, "1 ticket")
    tap(page, x + seat_px(page) * 1.2, y)
    expect_picked(page, "2 tickets")
    first, second = page.locator("#basket-list").inner_text().split(" · ")
    numbers = [int(re.findall(r"\d+", name)[1]) for name in (first, second)]
    assert numbers[1] - numbers[0] == 1, "they lie beside each other"
    sync_api.expect(page.locator("#basket-total")).to_have_text("€180.00")
    hold(page)
    picture = page.get_by_role("img", name=f"Where your places are: {first}; {second}")
    sync_api.expect(picture.locator("circle")).to_have_count(2)
    pay(page)
    expect_confirmed(page)
    sync_api.expect(page.locator("#tickets li")).to_have_count(2)


def test_keys_alone_pick_seats_and_speak_their_names(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    page.locator("#hall-list").focus()
    page.keyboard.press("Tab")
    sync_api.expect(section(page, "A")).to_be_focused()
    page.keyboard.press("Enter")
    sync_api.expect(cursor(page)).to_be_focused()
    expect_cursor(page, "^Block A: Row 1, seat 6, Front €90.00, available$")
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.locator("#announcer")).to_have_text("Block A: Row 1, seat 7, Front €90.00, available")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#announcer")).to_have_text("Block A, row 1, seat 7 picked. 1 ticket")
    expect_cursor(page, "Yours$")
    for key, place in (("End", "Row 1, seat 10"), ("ArrowDown", "Row 2, seat 10"), ("Home", "Row 2, seat 1")):
        page.keyboard.press(key)
        expect_cursor(page, f"{place},")
        assert seat_px(page) >= TARGET_PX
        box, view = cursor(page).bounding_box(), page.locator(".hall-view").bounding_box()
        assert view["x"] <= box["x"] <= view["x"] + view["width"] + 1 - box["width"], "it is in view"
    page.keyboard.press("Space")
    expect_picked(page, "2 tickets")
    page.keyboard.press("Space")
    expect_picked(page, "1 ticket")
    page.keyboard.press("Escape")
    sync_api.expect(page.locator(".hall-canvas")).to_be_hidden()
    sync_api.expect(section(page, "A")).to_be_focused()


def test_buttons_zoom_and_move_without_dragging(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    tool = {sign: page.locator(f".hall-tools [data-tool='{sign}']") for sign in "+−⤢←↑↓→"}
    tool["+"].click()
    sync_api.expect(page.locator(".hall-canvas")).to_be_visible()
    shown = pixels(page)
    for _ in range(4):
        tool["+"].click()
    for sign in "→↓←↑":
        tool[sign].click()
        shown = until_painted(page, shown)
    tool["⤢"].click()
    sync_api.expect(page.locator(".hall-overview")).to_be_visible()
    tool["+"].click()
    tool["−"].click()
    sync_api.expect(page.locator(".hall-overview")).to_be_visible()


def test_wheel_and_drag_move_the_map_and_a_click_picks(mouse: Any, suite: RunningSuite) -> None:
    page = mouse
    open_hall(page, suite)
    page.locator("#hall").evaluate("node => node.scrollIntoView()")
    x, y = middle(section(page, "B"))
    page.mouse.move(x, y)
    page.mouse.wheel(0, -600)
    sync_api.expect(page.locator(".hall-canvas")).to_be_visible()
    page.mouse.wheel(0, -300)
    sync_api.expect(page.locator("#hall-hint")).to_contain_text("Choose your seats.")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 30, y - 10, steps=3)
    page.mouse.up()
    expect_picked(page, "Nothing picked yet")
    for dx in range(0, 60, 5):
        page.mouse.move(x + dx, y)
        if page.locator(".hall-view[data-seat]").count():
            break
    sync_api.expect(page.locator(".hall-tip")).to_contain_text("Block B: Row")
    page.mouse.down()
    page.mouse.up()
    expect_picked(page, "1 ticket")
    page.mouse.wheel(0, 3000)
    sync_api.expect(page.locator(".hall-overview")).to_be_visible()


def test_a_pinch_comes_nearer(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    label = section(page, "A")
    label.scroll_into_view_if_needed()
    x, y = middle(page.locator(".hall-view"))
    devtools = page.context.new_cdp_session(page)

    def fingers(kind: str, apart: float) -> None:
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if kind == "touchEnd" else points})

    fingers("touchStart", 20)
    for apart in range(24, 140, 8):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)
    sync_api.expect(page.locator(".hall-canvas")).to_be_visible()
    expect_picked(page, "Nothing picked yet")


def test_the_list_and_the_map_agree(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    open_section(page, "A")
    page.keyboard.press("Enter")
    page.locator("#hall-list").click()
    sync_api.expect(page.locator("#seats-title")).to_have_text("Block A")
    sync_api.expect(page.locator("#seats .seat[aria-selected=true]")).to_have_text("6")
    with another_fan(suite, event_id) as other, page.expect_request(re.compile("/events/"), timeout=30_000):
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        other.hold("A-2-3")
        seat = page.locator("#seats [data-seat=A-2-3]")
        sync_api.expect(seat).to_have_attribute("data-status", "reserved")
        assert [url for url in requests if "/seats" in url] == [], "no page of seats is asked for again"
        page.evaluate("fetch('/events/none')")
    tier = page.locator("#seats [data-seat=A-1-1]")
    assert (tier.get_attribute("data-tier"), tier.get_attribute("data-mark")) == ("0", "0")
    page.locator("#seats [data-seat=A-1-7]").click()
    expect_picked(page, "2 tickets")
    page.locator("#seats-map").click()
    sync_api.expect(cursor(page)).to_be_focused()
    taken = "Row 2, seat 3, €50.00, in somebody's basket$"
    for key, words in (("ArrowDown", "Row 2, seat 6, €50.00, available$"), ("Home", "Row 2, seat 1,"),
                       ("ArrowRight", "Row 2, seat 2,"), ("ArrowRight", taken)):  # fmt: skip
        page.keyboard.press(key)
        expect_cursor(page, words)
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#announcer")).to_have_text("This seat is not available.")
    expect_picked(page, "2 tickets")


def test_general_admission_is_chosen_by_steps(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    section(page, "GA1").click()
    more = page.get_by_role("button", name="One more ticket for Floor")
    sync_api.expect(more).to_be_focused()
    page.keyboard.press("Enter")
    expect_picked(page, "1 ticket")


def test_the_hall_is_shown_to_those_who_ask_and_those_who_wait(page: Any, suite: RunningSuite) -> None:
    event_id = open_hall(page, suite)
    other = page.context.browser.new_page()
    other.goto(f"{suite.url}/e/{event_id}")
    sync_api.expect(other.locator("#hall")).to_have_count(0)
    other.locator("#show-hall").click()
    sync_api.expect(other.locator("#hall")).to_be_visible()
    sync_api.expect(other.locator("#hall button:visible")).to_have_count(0)
    sync_api.expect(other.locator("p.hall-label[data-section=A]")).to_contain_text("60 free")
    other.close()


def test_a_hall_of_20000_seats_comes_in_one_request(mouse: Any, suite: RunningSuite) -> None:
    page, asked = mouse, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    event_id = open_hall(page, suite, sections=BLOCKS)
    open_section(page, "S17")
    expect_cursor(page, "^Section 17: Row 1, seat 13, €50.00, available$")
    free = pixels(page)
    with another_fan(suite, event_id) as other:
        other.hold("S17-1-13")
        expect_cursor(page, "in somebody's basket$")
    assert pixels(page) != free
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_picked(page, "1 ticket")
    assert [url for url in asked if "/seats?" in url] == []
    assert len([url for url in asked if "/map?" in url]) == 1
