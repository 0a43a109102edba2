"""A fan returns single tickets of a hold and keeps the others."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.steps import enter, expect_confirmed, hold, pay, put_on_sale, select_ga_ticket
from tests.support.running.suite import RunningSuite

KEEP = re.compile(r"/reservations/\w+/keep$")
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 1, "seats_per_row": 4, "price_minor": 5000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 3000},
]


@pytest.fixture
async def event_id(page: Any, suite: RunningSuite) -> str:
    """An event of which the fan holds two seats and two GA tickets."""
    event_id = await put_on_sale(suite, sections=SECTIONS)
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    for _ in range(2):
        await select_ga_ticket(page)
    await page.locator("#section-A button").click()
    for n in range(2):
        await page.locator("#seats .seat").nth(n).click()
    await hold(page)
    return event_id


async def available(suite: RunningSuite, event_id: str) -> dict[str, int]:
    async with suite.operator() as admin:
        sections = (await admin.get(f"/events/{event_id}/sections")).json()["sections"]
    return {section["section_id"]: section["available_seats"] for section in sections}


async def remove(page: Any, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def test_a_fan_returns_two_tickets_and_buys_the_others(page: Any, suite: RunningSuite, event_id: str) -> None:
    held = page.locator("#held-tickets li span")
    await remove(page, "Remove Block A, row 1, seat 1")
    await expect(held).to_have_text(["Block A, row 1, seat 2", "2 × Floor"])
    await expect(page.locator("#held-total")).to_have_text("€110.00")
    await expect(page.get_by_role("button", name="Remove Block A, row 1, seat 2")).to_be_focused()
    await expect(page.locator("#announcer")).to_have_text("Removed: Block A, row 1, seat 1. 3 tickets left.")
    await remove(page, "Remove one ticket for Floor")
    await expect(held).to_have_text(["Block A, row 1, seat 2", "1 × Floor"])
    assert await available(suite, event_id) == {"A": 3, "GA1": 8}
    await pay(page)
    await expect_confirmed(page)
    await expect(page.locator("#tickets li")).to_have_count(2)


async def test_returning_the_last_ticket_releases_the_hold(page: Any, suite: RunningSuite, event_id: str) -> None:
    for name in ("Block A, row 1, seat 2", "one ticket for Floor", "Floor", "Block A, row 1, seat 1"):
        await remove(page, f"Remove {name}")
        await expect(page.get_by_role("button", name=f"Remove {name}", exact=True)).to_be_hidden()
    await expect(page.locator("#choosing")).to_be_visible()
    await expect(page.locator("#trouble-text")).to_have_text("You gave your tickets back.")
    assert await available(suite, event_id) == {"A": 4, "GA1": 9}


@pytest.mark.parametrize(
    ("status", "slug", "step"),
    [(409, "payment-in-progress", "held"), (410, "hold-expired", "choosing")],
    ids=["payment in progress", "hold expired"],
)
async def test_a_refused_return_keeps_the_tickets_and_shows_why(
    page: Any, event_id: str, status: int, slug: str, step: str
) -> None:
    problem = {"type": f"/problems/{slug}", "title": "It cannot be returned.", "status": status}
    await page.route(
        KEEP, lambda route: route.fulfill(status=status, body=json.dumps(problem), content_type="application/json")
    )
    await remove(page, "Remove Block A, row 1, seat 1")
    await expect(page.locator("#trouble-text")).to_have_text("It cannot be returned.")
    await expect(page.locator(f"#{step}")).to_be_visible()
    await expect(page.locator("#held-tickets li")).to_have_count(3)


async def test_a_ticket_returned_in_another_tab_disappears_in_this_one(page: Any, event_id: str) -> None:
    other = await page.context.new_page()
    await other.goto(page.url)
    await remove(other, "Remove Block A, row 1, seat 1")
    await expect(other.locator("#held-tickets li")).to_have_count(2)
    await remove(page, "Remove Block A, row 1, seat 2")
    await expect(page.locator("#trouble-text")).to_contain_text("Not in this reservation")
    await expect(page.locator("#held-tickets li span")).to_have_text(["Block A, row 1, seat 2", "2 × Floor"])
    await other.close()
