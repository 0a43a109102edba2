"""By keyboard alone: every control is reached by Tab, and focus is never lost or hidden."""

from typing import Any

from playwright.async_api import expect

from tests.browser.keyboard import tab_to
from tests.browser.recorded.site import Asked, RecordedSite
from tests.browser.recorded.steps import REFERENCE, come_in


async def test_a_fan_joins_by_keyboard(page: Any, site: RecordedSite) -> None:
    def joined(asked: Asked) -> Any:
        site.answers["GET /events/hall/queue/status"] = site.answers["waiting"]
        return site.answers["joined"]

    site.answers |= {"joined": site.answers["POST /events/hall/queue"] | {"status": "waiting"},
                     "POST /events/hall/queue": joined}  # fmt: skip
    await page.goto(f"{site.url}/")
    await tab_to(page, "#events a[href='/e/hall']")
    async with page.expect_request("**/queue/status"):  # the script is at work
        await page.keyboard.press("Enter")
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#waiting-title")).to_be_focused()


async def test_a_fan_chooses_holds_and_pays_by_keyboard(page: Any, site: RecordedSite) -> None:
    await come_in(page, site)
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
    await page.keyboard.type("ada@example.org")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/o/*")
    await expect(page.locator(".ticket .code")).to_have_count(3)  # moves what is below
    await tab_to(page, "#tickets-pdf")
    [order] = site.bodies("POST /orders")
    assert (order["customer"]["email"], order["expected_total_minor"]) == ("ada@example.org", 10_000)
    assert page.url.endswith(REFERENCE)


async def test_a_fan_gives_tickets_back_by_keyboard(page: Any, site: RecordedSite) -> None:
    await come_in(page, site, "floor")
    await tab_to(page, "#section-GA1 .step:last-of-type")
    await page.keyboard.press("Enter")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#give-back")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing-title")).to_be_focused()
