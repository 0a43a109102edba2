"""The whole way by keyboard alone: every control is reached by Tab, and focus is never lost or hidden."""

import uuid
from typing import Any

from playwright.async_api import expect

from tests.browser.keyboard import tab_to
from tests.browser.steps import CALL_TIMEOUT_MS, SOON, expect_confirmed, put_on_sale, wait_until_listed
from tests.support.running.suite import RunningSuite

SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 6, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]


async def test_a_fan_buys_two_seats_together_by_keyboard(page: Any, suite: RunningSuite) -> None:
    event_id = await put_on_sale(suite, sections=SECTIONS, starts_at=SOON)
    await page.goto(f"{suite.url}/")
    await wait_until_listed(page, event_id)
    await tab_to(page, f"#events a[href='/e/{event_id}']")
    await page.keyboard.press("Enter")
    await expect(page.locator("#join")).to_be_visible()
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#choosing-title")).to_be_focused()
    await tab_to(page, "#section-A button")
    await page.keyboard.press("Enter")
    await expect(page.locator("#seats-title")).to_be_focused()
    await tab_to(page, "#seats .seat")
    for key in ("ArrowDown", "ArrowRight", "Enter", "ArrowRight", "Space"):
        await page.keyboard.press(key)
    await expect(page.locator("#basket-count")).to_have_text("2 tickets")
    await expect(page.locator("#basket-list")).to_contain_text("row 2, seat 2 · Block A, row 2, seat 3")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#name")
    await page.keyboard.type("Ada Lovelace")
    await tab_to(page, "#email")
    await page.keyboard.type(f"ada-{uuid.uuid4().hex}@example.org")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/o/*")
    await expect_confirmed(page)
    await expect(page.locator(".ticket .code")).to_have_count(2, timeout=CALL_TIMEOUT_MS)  # moves what is below
    await tab_to(page, "#tickets-pdf")


async def test_tickets_are_given_back_and_the_line_is_left_by_keyboard(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=SECTIONS)}")
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await tab_to(page, "#section-GA1 .step:last-of-type")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#give-back")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing-title")).to_be_focused()
