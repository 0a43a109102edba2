"""An event in another time zone with price levels: the pages show the venue's time and prices with fees and taxes."""

import re

from playwright import sync_api

from tests.browser.steps import enter, hold, pay, put_on_sale
from tests.support.running.suite import RunningSuite


def put_on_sale_in_tokyo(suite: RunningSuite) -> str:
    front = {"name": "Front", "rows": [1, 1], "price_minor": 41000}
    block = {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 4,
             "price_minor": 31000, "price_levels": [front]}  # fmt: skip
    return put_on_sale(
        suite, starts_at="2030-03-05T10:00:00Z", timezone="Asia/Tokyo", sections=[block],
        fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 500}],
        taxes=[{"name": "VAT", "percent": 3.35, "included": False}],
    )  # fmt: skip


def test_the_page_shows_the_venues_time_and_all_in_prices_by_level(
    suite: RunningSuite, browser: sync_api.Browser
) -> None:
    page = browser.new_context(locale="en-GB", timezone_id="America/Bogota").new_page()
    page.goto(f"{suite.url}/e/{put_on_sale_in_tokyo(suite)}")
    sync_api.expect(page.locator("#event-time")).to_have_text("19:00 Japan Standard Time")
    sync_api.expect(page.locator("#event-own")).to_contain_text("05:00 Colombia Standard Time")
    sync_api.expect(page.locator("#section-A .price")).to_have_text("from €325.55")
    enter(page)
    page.locator("#section-A button").click()
    legend = page.locator("#price-legend li")
    sync_api.expect(legend).to_have_text(["Front: €428.90", "€325.55"])
    seats = page.get_by_role("grid").get_by_role("gridcell")
    sync_api.expect(seats).to_have_count(8)
    first, last = seats.first, seats.last
    sync_api.expect(first).to_have_attribute("title", "Row 1, seat 1, €428.90, available")
    styles = [seat.evaluate("seat => getComputedStyle(seat).background + getComputedStyle(seat).borderColor")
             for seat in (first, last)]  # fmt: skip
    assert styles[0] != styles[1]
    last.click()
    sync_api.expect(last).to_have_attribute("aria-selected", "true")
    sync_api.expect(page.locator("#basket-total")).to_have_text("€325.55")
    hold(page)
    sync_api.expect(page.locator("#held-total")).to_have_text("€325.55")
    pay(page)
    sync_api.expect(page.locator("#order-when")).to_contain_text(re.compile("19:00 Japan Standard Time"))
