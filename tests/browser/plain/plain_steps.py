"""Steps of a fan whose browser runs no scripts."""

import uuid
from typing import Any

from playwright import sync_api

from tests.browser.steps import CALL_TIMEOUT_MS, put_on_sale
from tests.support.running.suite import RunningSuite
from tests.support.wait import until

SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 12, "price_minor": 5000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 3000},
]
FEES = [{"name": "Booking fee", "per": "ticket", "amount_minor": 250}]
ROOM = {"rate_per_s": 1000, "burst": 1000, "max_active": 5000}


def on_sale(suite: RunningSuite, **fields: Any) -> str:
    return put_on_sale(suite, **{"room": ROOM, "sections": SECTIONS, "fees": FEES, **fields})


def open_lobby(page: Any, suite: RunningSuite, event_id: str) -> None:
    """The page of an event that was opened a moment ago, once the gateway knows."""

    def takes_fans() -> bool:
        page.goto(f"{suite.url}/e/{event_id}")
        visible: bool = page.locator("#join").is_visible()
        return visible

    until(takes_fans, what="the open line")


def join(page: Any, suite: RunningSuite, event_id: str) -> None:
    """Joins, and waits for the page that follows: a reload before it has come would meet neither page."""
    open_lobby(page, suite, event_id)
    with page.expect_navigation():
        page.locator("#join").click()


def come_in(page: Any) -> None:
    """Waits for the call, by the page's own refreshing, and comes in."""
    page.locator("form[action$='/pass'] button").click(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#plain-quantity")).to_be_visible()


def hold_best(page: Any, quantity: int = 2) -> None:
    page.locator("#plain-quantity").select_option(str(quantity))
    page.locator("form:has(#plain-quantity) .primary").click()
    expect_held(page, quantity)


def expect_held(page: Any, lines: int) -> None:
    sync_api.expect(page.locator("#plain-name")).to_be_visible()
    sync_api.expect(page.locator(".tickets-held li")).to_have_count(lines)


def pay(page: Any, way: str = "sandbox:ok") -> None:
    page.locator("#plain-name").fill("Ada Lovelace")
    page.locator("#plain-email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    page.locator("#plain-method").select_option(way)
    page.locator("form[action='/orders'] .primary").click()
    page.wait_for_url("**/o/*")


def expect_face(page: Any, face: str) -> None:
    sync_api.expect(page.locator("#plain-order")).to_have_attribute("data-face", face, timeout=CALL_TIMEOUT_MS)


def expect_tickets(page: Any, suite: RunningSuite) -> None:
    """The order's page links the tickets, and they are a PDF."""
    expect_face(page, "confirmed")
    link = page.locator("a[href$='/tickets.pdf']")
    sync_api.expect(link).to_be_visible(timeout=CALL_TIMEOUT_MS)
    answer = page.request.get(f"{suite.url}{link.get_attribute('href')}")
    assert answer.body().startswith(b"%PDF"), answer.status
