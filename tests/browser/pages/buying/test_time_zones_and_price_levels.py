"""An event in another time zone with price levels: the pages show the venue's time and prices with fees and taxes."""

from playwright.async_api import expect

from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import come_in
from tests.browser.steps import hold
from tests.support.browser import NewPage


async def test_the_page_shows_the_venues_time_and_all_in_prices_by_level(new_page: NewPage, site: RecordedSite) -> None:
    page = await new_page(timezone_id="America/Bogota")
    await come_in(page, site, "orchestra")
    await expect(page.locator("#event-time")).to_have_text("05:00 Japan Standard Time")
    await expect(page.locator("#event-own")).to_contain_text("15:00 Colombia Standard Time")
    await expect(page.locator("#event-from")).to_have_text("from €70.00")
    await expect(page.locator("#on-top")).to_contain_text("Booking fee €5.00 per ticket")
    await expect(page.locator("#section-A .price")).to_have_text("from €315.00")
    await page.locator("#section-A button").click()
    await expect(page.locator("#price-legend li")).to_have_text(["Front: €415.00", "€315.00"])
    seats = page.get_by_role("grid").get_by_role("gridcell")
    await expect(seats).to_have_count(36)
    first, last = seats.first, seats.last
    await expect(first).to_have_attribute("title", "Row 1, seat 1, €415.00, available")
    styles = [
        await seat.evaluate("seat => getComputedStyle(seat).background + getComputedStyle(seat).borderColor")
        for seat in (first, last)
    ]
    assert styles[0] != styles[1]
    await last.click()
    await expect(last).to_have_attribute("aria-selected", "true")
    await expect(page.locator("#basket-total")).to_have_text("€315.00")
    await hold(page)
    await expect(page.locator("#held-total")).to_have_text("€315.00")
