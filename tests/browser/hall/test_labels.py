"""What stands on rows and chairs is what the map, the list, the selection and the held tickets say."""

from typing import Any

from playwright import sync_api

from tests.browser.hall.steps import cursor, expect_cursor, open_hall, open_section
from tests.support.running.suite import RunningSuite

STALLS = {
    "section_id": "A", "name": "Stalls", "kind": "seated", "seats_per_row": 4, "seats": "odd from the right",
    "rows": ["B", "A", {"row": "AA", "seats": [1, 2, "2b", 10]}], "price_minor": 5000,
    "price_levels": [{"name": "Front", "rows": ["B", "A"], "price_minor": 9000}],
}  # fmt: skip
BOX = {"section_id": "B", "name": "Box", "kind": "seated", "rows": 2, "seats_per_row": 2, "price_minor": 9000}


def test_seats_are_called_by_their_labels_on_the_map_and_in_the_list(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite, sections=[STALLS, BOX])
    open_section(page, "A")
    cursor(page).focus()
    for key, place in (
        ("Home", "Row B, seat 7, Front €90.00"), ("ArrowDown", "Row A, seat 7, Front"), ("End", "Row A, seat 1, Front"),
        ("ArrowDown", "Row AA, seat 10, €50.00, available$"),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect_cursor(page, f"^Stalls: {place}")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#announcer")).to_have_text("Stalls, row AA, seat 10 picked. 1 ticket")
    page.locator("#hall-list").click()
    sync_api.expect(page.locator("#seats .row-name")).to_have_text(["B", "A", "AA"])
    sync_api.expect(page.locator("#seats .seat")).to_have_text([*"75317531", "1", "2", "2b", "10"])
    sync_api.expect(page.locator("#seats .seat[aria-selected=true]")).to_have_text("10")
    last = page.locator("#seats [data-seat=A-AA-2b]")
    sync_api.expect(last).to_have_attribute("title", "Row AA, seat 2b, €50.00, available")
    last.click()
    sync_api.expect(page.locator("#basket-list")).to_have_text("Stalls, row AA, seat 10 · Stalls, row AA, seat 2b")
    page.locator("#hold").click()
    sync_api.expect(page.locator("#held-hall circle")).to_have_count(2)
    sync_api.expect(page.locator("#held-tickets")).to_contain_text("row AA, seat 2b")
