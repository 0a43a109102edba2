"""The whole way in a browser without scripts: join, wait, come in, hold, be declined, pay and print, by forms alone."""

import re
from typing import Any

from playwright.async_api import expect

from tests.browser.plain_steps import come_in, expect_face, expect_held, expect_tickets, join, on_sale, pay
from tests.support.running.suite import RunningSuite


async def test_a_fan_buys_seats_from_the_list_with_a_second_card(plain: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite)
    await join(plain, suite, event_id)
    await come_in(plain)
    await plain.locator("#ga-GA1").select_option("3")
    await plain.locator("form:has(#ga-GA1) .primary").click()
    await expect_held(plain, 1)
    await expect(plain.locator(".tickets-held li")).to_have_text("3 × Floor")
    await plain.get_by_role("button", name="Give the tickets back").click()
    await plain.locator("a[href*='section=A']").click()
    for seat in ("A-2-7", "A-2-8"):
        await plain.locator(f"input[value={seat}]").check()
    await plain.get_by_role("button", name="Hold these tickets").click()
    await expect_held(plain, 2)
    await expect(plain.locator(".plain-held .tickets-held")).to_contain_text("Block A, row 2, seat 7")
    await plain.get_by_role("button", name="I need more time").click()
    await expect_held(plain, 2)
    await pay(plain, "sandbox:decline")
    await expect_face(plain, "declined")
    order_url = plain.url
    await plain.locator("#plain-method").select_option("sandbox:redirect")
    await plain.get_by_role("button", name="Try the payment again").click()
    await expect_face(plain, "act")
    await plain.get_by_role("link", name="Continue to the payment page").click()
    await plain.get_by_role("button", name="Pay").click()
    await plain.wait_for_url(re.compile(re.escape(order_url)))
    await expect_tickets(plain, suite)
