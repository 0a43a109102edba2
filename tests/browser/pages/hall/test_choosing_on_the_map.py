"""Seats chosen on the map: by touch, mouse, wheel, pinch, buttons and keys alone; the list shows the same.

What stands on rows and chairs is what the map, the list, the selection and the held tickets say. What is held is shown
in the hall, in a drawing and in words, also after a return and after a reload.
"""

import re
from typing import Any

from playwright.async_api import expect

from features.hall.seat_codes import HELD
from tests.browser.hall_steps import (
    TARGET_PX,
    cursor,
    expect_cursor,
    middle,
    open_section,
    pick_two_by_touch,
    pixels,
    seat_px,
    section,
    until_painted,
)
from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import change_seats, come_in
from tests.browser.steps import hold


async def expect_picked(page: Any, count: str) -> None:
    await expect(page.locator("#basket-count")).to_have_text(count)


async def test_a_fan_holds_two_seats_by_touch_on_a_phone(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    first, second = await pick_two_by_touch(page)
    numbers = [int(re.findall(r"\d+", name)[1]) for name in (first, second)]
    assert numbers[1] - numbers[0] == 1, "they lie beside each other"
    await expect(page.locator("#basket-total")).to_have_text("€180.00")
    await hold(page)
    picture = page.get_by_role("img", name=f"Where your places are: {first}; {second}")
    await expect(picture.locator("circle")).to_have_count(2)


async def test_keys_alone_pick_seats_and_speak_their_names(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await page.locator("#hall-list").focus()
    await page.keyboard.press("Tab")
    await expect(section(page, "A")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(cursor(page)).to_be_focused()
    await expect_cursor(page, "^Block A: Row 1, seat 6, Front €90.00, available$")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#announcer")).to_have_text("Block A: Row 1, seat 7, Front €90.00, available")
    await page.keyboard.press("Enter")
    await expect(page.locator("#announcer")).to_have_text("Block A, row 1, seat 7 picked. 1 ticket")
    await expect_cursor(page, "Yours$")
    for key, place in (("End", "Row 1, seat 10"), ("ArrowDown", "Row 2, seat 10"), ("Home", "Row 2, seat 1")):
        await page.keyboard.press(key)
        await expect_cursor(page, f"{place},")
        assert await seat_px(page) >= TARGET_PX
        box, view = await cursor(page).bounding_box(), await page.locator(".hall-view").bounding_box()
        assert view["x"] <= box["x"] <= view["x"] + view["width"] + 1 - box["width"], "it is in view"
    await page.keyboard.press("Space")
    await expect_picked(page, "2 tickets")
    await page.keyboard.press("Space")
    await expect_picked(page, "1 ticket")
    await page.keyboard.press("Escape")
    await expect(page.locator(".hall-canvas")).to_be_hidden()
    await expect(section(page, "A")).to_be_focused()


async def test_buttons_zoom_and_move_without_dragging(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    tool = {sign: page.locator(f".hall-tools [data-tool='{sign}']") for sign in "+−⤢←↑↓→"}
    await tool["+"].click()
    await expect(page.locator(".hall-canvas")).to_be_visible()
    shown = await pixels(page)
    for _ in range(4):
        await tool["+"].click()
    for sign in "→↓←↑":
        await tool[sign].click()
        shown = await until_painted(page, shown)
    await tool["⤢"].click()
    await expect(page.locator(".hall-overview")).to_be_visible()
    await tool["+"].click()
    await tool["−"].click()
    await expect(page.locator(".hall-overview")).to_be_visible()


async def test_wheel_and_drag_move_the_map_and_a_click_picks(mouse: Any, site: RecordedSite) -> None:
    page = mouse
    await come_in(page, site)
    await page.locator("#hall").evaluate("node => node.scrollIntoView()")
    x, y = await middle(section(page, "B"))
    await page.mouse.move(x, y)
    await page.mouse.wheel(0, -600)
    await expect(page.locator(".hall-canvas")).to_be_visible()
    await page.mouse.wheel(0, -300)
    await expect(page.locator("#hall-hint")).to_contain_text("Choose your seats.")
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x - 30, y - 10, steps=3)
    await page.mouse.up()
    await expect_picked(page, "Nothing picked yet")
    for dx in range(0, 60, 5):
        await page.mouse.move(x + dx, y)
        if await page.locator(".hall-view[data-seat]").count():
            break
    await expect(page.locator(".hall-tip")).to_contain_text("Block B: Row")
    await page.mouse.down()
    await page.mouse.up()
    await expect_picked(page, "1 ticket")
    await page.mouse.wheel(0, 3000)
    await expect(page.locator(".hall-overview")).to_be_visible()


async def test_a_pinch_comes_nearer(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    label = section(page, "A")
    await label.scroll_into_view_if_needed()
    x, y = await middle(page.locator(".hall-view"))
    devtools = await page.context.new_cdp_session(page)

    async def fingers(kind: str, apart: float) -> None:
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        await devtools.send(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if kind == "touchEnd" else points}
        )

    await fingers("touchStart", 20)
    for apart in range(24, 140, 8):
        await fingers("touchMove", apart)
    await fingers("touchEnd", 0)
    await expect(page.locator(".hall-canvas")).to_be_visible()
    await expect_picked(page, "Nothing picked yet")


async def test_the_list_and_the_map_agree(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    await page.locator("#hall-list").click()
    await expect(page.locator("#seats-title")).to_have_text("Block A")
    await expect(page.locator("#seats .seat[aria-selected=true]")).to_have_text("6")
    asked = len(site.asked)
    change_seats(site, "hall", ["A-2-3"], HELD)
    await expect(page.locator("#seats [data-seat=A-2-3]")).to_have_attribute("data-status", "reserved")
    assert not [each for each in site.asked[asked:] if each.path.endswith("/seats")], "it is not asked for again"
    tier = page.locator("#seats [data-seat=A-1-1]")
    assert (await tier.get_attribute("data-tier"), await tier.get_attribute("data-mark")) == ("0", "0")
    await page.locator("#seats [data-seat=A-1-7]").click()
    await expect_picked(page, "2 tickets")
    await page.locator("#seats-map").click()
    await expect(cursor(page)).to_be_focused()
    taken = "Row 2, seat 3, €50.00, in somebody's basket$"
    for key, words in (("ArrowDown", "Row 2, seat 6, €50.00, available$"), ("Home", "Row 2, seat 1,"),
                       ("ArrowRight", "Row 2, seat 2,"), ("ArrowRight", taken)):  # fmt: skip
        await page.keyboard.press(key)
        await expect_cursor(page, words)
    await page.keyboard.press("Enter")
    await expect(page.locator("#announcer")).to_have_text("This seat is not available.")
    await expect_picked(page, "2 tickets")


async def test_general_admission_is_chosen_by_steps(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await section(page, "GA1").click()
    more = page.get_by_role("button", name="One more ticket for Floor")
    await expect(more).to_be_focused()
    await page.keyboard.press("Enter")
    await expect_picked(page, "1 ticket")


async def test_the_hall_is_shown_to_those_who_ask_and_those_who_wait(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    other = await page.context.browser.new_page()
    del site.answers["GET /events/hall/queue/status"]
    await other.goto(f"{site.url}/e/hall")
    await expect(other.locator("#hall")).to_have_count(0)
    await other.locator("#show-hall").click()
    await expect(other.locator("#hall")).to_be_visible()
    await expect(other.locator("#hall button:visible")).to_have_count(0)
    await expect(other.locator("p.hall-label[data-section=A]")).to_contain_text("60 free")
    await other.close()


async def test_a_hall_of_20000_seats_comes_in_one_request(mouse: Any, site: RecordedSite) -> None:
    page = mouse
    await come_in(page, site, "large")
    await open_section(page, "S17")
    await expect_cursor(page, "^Section 17: Row 1, seat 13, €50.00, available$")
    free = await pixels(page)
    change_seats(site, "large", ["S17-1-13"], HELD)
    await expect_cursor(page, "in somebody's basket$")
    assert await pixels(page) != free
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect_picked(page, "1 ticket")
    paths = [each.path.removeprefix("/events/large/") for each in site.asked]
    assert (paths.count("map"), [path for path in paths if path.endswith("/seats")]) == (1, [])


async def test_seats_are_called_by_their_labels_on_the_map_and_in_the_list(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "stalls")
    await open_section(page, "A")
    await cursor(page).focus()
    for key, place in (
        ("Home", "Row B, seat 7, Front €90.00"), ("ArrowDown", "Row A, seat 7, Front"), ("End", "Row A, seat 1, Front"),
        ("ArrowDown", "Row AA, seat 10, €50.00, available$"),
    ):  # fmt: skip
        await page.keyboard.press(key)
        await expect_cursor(page, f"^Stalls: {place}")
    await page.keyboard.press("Enter")
    await expect(page.locator("#announcer")).to_have_text("Stalls, row AA, seat 10 picked. 1 ticket")
    await page.locator("#hall-list").click()
    await expect(page.locator("#seats .row-name")).to_have_text(["B", "A", "AA"])
    await expect(page.locator("#seats .seat")).to_have_text([*"75317531", "1", "2", "2b", "10"])
    await expect(page.locator("#seats .seat[aria-selected=true]")).to_have_text("10")
    last = page.locator("#seats [data-seat=A-AA-2b]")
    await expect(last).to_have_attribute("title", "Row AA, seat 2b, €50.00, available")
    await last.click()
    await expect(page.locator("#basket-list")).to_have_text("Stalls, row AA, seat 10 · Stalls, row AA, seat 2b")
    await page.locator("#hold").click()
    await expect(page.locator("#held-hall circle")).to_have_count(2)
    await expect(page.locator("#held-tickets")).to_contain_text("row AA, seat 2b")


async def test_the_best_available_is_shown_in_place_and_follows_what_is_returned(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
    await page.locator("#best-quantity").select_option("3")
    await page.locator("#best-where").select_option("section:B")
    await page.locator("#best-find").click()
    marks = page.locator("#held-hall circle")
    await expect(marks).to_have_count(3)
    seats = await page.locator("#held-tickets li span").all_inner_texts()
    picture = page.locator("#held-hall svg")
    await expect(picture).to_have_attribute("aria-label", f"Where your places are: {'; '.join(seats)}")
    await expect(page.locator("#held-hall [data-mine]")).to_have_count(1)
    await expect(page.locator("#hall")).to_be_hidden()
    await page.get_by_role("button", name=f"Remove {seats[0]}").click()
    await expect(marks).to_have_count(2)
    await page.reload()
    await expect(marks).to_have_count(2)
    await page.locator("#give-back").click()
    await expect(page.locator("#hall")).to_be_visible()
    await expect(page.locator("#held-hall")).to_be_hidden()
    await expect(page.locator("button.hall-label[data-section=B]")).to_contain_text("40 free")
