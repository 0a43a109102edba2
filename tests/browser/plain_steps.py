"""Steps of a fan whose browser runs no scripts."""

import uuid
from typing import Any

from playwright.async_api import expect

from tests.browser.steps import CALL_TIMEOUT_MS, put_on_sale
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 12, "price_minor": 5000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 3000},
]
FEES = [{"name": "Booking fee", "per": "ticket", "amount_minor": 250}]
ROOM = {"rate_per_s": 1000, "burst": 1000, "max_active": 5000}


async def on_sale(suite: RunningSuite, **fields: Any) -> str:
    return await put_on_sale(suite, **{"room": ROOM, "sections": SECTIONS, "fees": FEES, **fields})


async def open_lobby(page: Any, suite: RunningSuite, event_id: str) -> None:
    """The page of an event that was opened a moment ago, once the gateway knows."""

    async def takes_fans() -> bool:
        await page.goto(f"{suite.url}/e/{event_id}")
        visible: bool = await page.locator("#join").is_visible()
        return visible

    await wait_until(takes_fans)


async def join(page: Any, suite: RunningSuite, event_id: str) -> None:
    """Joins, and waits for the page that follows: a reload before it has come would meet neither page."""
    await open_lobby(page, suite, event_id)
    async with page.expect_navigation():
        await page.locator("#join").click()


async def come_in(page: Any) -> None:
    """Waits for the call, by the page's own refreshing, and comes in."""
    await page.locator("form[action$='/pass'] button").click(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#plain-quantity")).to_be_visible()


async def hold_best(page: Any, quantity: int = 2) -> None:
    await page.locator("#plain-quantity").select_option(str(quantity))
    await page.locator("form:has(#plain-quantity) .primary").click()
    await expect_held(page, quantity)


async def expect_held(page: Any, lines: int) -> None:
    await expect(page.locator("#plain-name")).to_be_visible()
    await expect(page.locator(".tickets-held li")).to_have_count(lines)


async def pay(page: Any, way: str = "sandbox:ok") -> None:
    await page.locator("#plain-name").fill("Ada Lovelace")
    await page.locator("#plain-email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    await page.locator("#plain-method").select_option(way)
    await page.locator("form[action='/orders'] .primary").click()
    await page.wait_for_url("**/o/*")


async def expect_face(page: Any, face: str) -> None:
    await expect(page.locator("#plain-order")).to_have_attribute("data-face", face, timeout=CALL_TIMEOUT_MS)


async def expect_tickets(page: Any, suite: RunningSuite) -> None:
    """The order's page links the tickets, and they are a PDF."""
    await expect_face(page, "confirmed")
    link = page.locator("a[href$='/tickets.pdf']")
    await expect(link).to_be_visible(timeout=CALL_TIMEOUT_MS)
    answer = await page.request.get(f"{suite.url}{await link.get_attribute('href')}")
    assert (await answer.body()).startswith(b"%PDF"), answer.status
