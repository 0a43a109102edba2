"""Finding an order again: this browser's orders and the calendar file."""

from typing import Any

from playwright.async_api import expect

from tests.browser.steps import enter, enter_from_catalogue, expect_confirmed, hold, pay, put_on_sale, select_ga_ticket
from tests.support.running.suite import RunningSuite

SECTIONS = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}]


async def buy(page: Any) -> str:
    """Buys one ticket; returns the order's reference."""
    await select_ga_ticket(page)
    await hold(page)
    await pay(page)
    await expect_confirmed(page)
    return str(page.url.rsplit("/", 1)[1])


async def test_a_browser_lists_its_orders_and_each_has_a_calendar_file(page: Any, suite: RunningSuite) -> None:
    await enter_from_catalogue(page, suite)
    await buy(page)
    event_id = await put_on_sale(suite, name="Second Night", venue="Polar Arena", sections=SECTIONS)
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    reference = await buy(page)
    async with page.expect_download() as download:
        await page.locator("#calendar").click()
    assert "SUMMARY;LANGUAGE=en:Second Night" in (await (await download.value).path()).read_text()
    await page.get_by_role("link", name="Your orders").first.click()
    entries = page.locator("#orders a")
    await expect(entries).to_have_count(2)
    await expect(entries.nth(0)).to_contain_text(f"confirmed · €30.00 · {reference}")
    await entries.nth(1).click()
    await expect(page.locator("#order-event")).to_have_text("Northern Lights Live")
