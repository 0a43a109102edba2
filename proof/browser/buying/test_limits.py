"""A limit per customer, over several events too, is told before anybody waits, and named when an order exceeds it."""

import uuid
from typing import Any

from playwright.async_api import expect

from tests.browser.steps import enter, expect_confirmed, hold, put_on_sale, select_ga_ticket
from tests.support.running.suite import RunningSuite

TOUR_MAX = 3
FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}


async def buy_two(page: Any, suite: RunningSuite, event_id: str, email: str) -> None:
    await page.goto(f"{suite.url}/e/{event_id}")
    await expect(page.locator("#event-limit")).to_have_text(
        "up to 6 tickets each · 3 tickets per customer for the whole tour"
    )
    await enter(page)
    await select_ga_ticket(page)
    await select_ga_ticket(page)
    await hold(page)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill(email)
    await page.locator("#pay").click()


async def test_the_limit_of_a_tour_is_told_and_counts_over_its_events(page: Any, suite: RunningSuite) -> None:
    tour = {"tour_id": f"tour-{uuid.uuid4().hex[:8]}", "tickets_per_customer": TOUR_MAX}
    email = f"ada-{uuid.uuid4().hex}@example.org"
    first, second = [await put_on_sale(suite, sections=[FLOOR], sales={"tour": tour}) for _ in range(2)]
    await buy_two(page, suite, first, email)
    await expect_confirmed(page)
    await buy_two(page, suite, second, email)
    await expect(page.locator("#trouble-text")).to_have_text(
        "More than is allowed: 3 tickets per customer for the whole tour. 2 are taken already."
    )
    await page.locator("#held-tickets button").click()
    await expect(page.locator("#held-tickets")).to_contain_text("1 × Floor")
    await page.locator("#pay").click()
    await expect_confirmed(page)
