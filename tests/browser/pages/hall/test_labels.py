"""What stands on rows and chairs is what the map, the list, the selection and the held tickets say."""

from typing import Any

from playwright.async_api import expect

from tests.browser.hall_steps import cursor, expect_cursor, open_section
from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import come_in


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
