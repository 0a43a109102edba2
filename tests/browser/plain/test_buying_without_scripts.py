"""The whole way in a browser without scripts: join, wait, come in, hold, pay and print, by forms alone."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
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


@pytest.fixture
def plain(browser: Any) -> Iterator[Any]:
    """A phone's page that runs no scripts."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, locale="en-GB", java_script_enabled=False, accept_downloads=True
    )
    yield context.new_page()
    context.close()


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
    open_lobby(page, suite, event_id)
    page.locator("#join").click()


def come_in(page: Any) -> None:
    """Waits for the call, by the page's own refreshing, and comes in."""
    page.get_by_role("button", name="Come in").click(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#plain-title")).to_have_text("Choose your tickets")


def hold_best(page: Any, quantity: int = 2) -> None:
    page.locator("#plain-quantity").select_option(str(quantity))
    page.get_by_role("button", name="Find and hold").click()
    sync_api.expect(page.locator("#plain-title")).to_have_text("These are yours for now")


def pay(page: Any, way: str = "sandbox:ok") -> None:
    page.locator("#plain-name").fill("Ada Lovelace")
    page.locator("#plain-email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    page.locator("#plain-method").select_option(way)
    page.get_by_role("button", name=re.compile("Pay ")).click()
    page.wait_for_url("**/o/*")


def expect_face(page: Any, face: str) -> None:
    sync_api.expect(page.locator("#plain-order")).to_have_attribute("data-face", face, timeout=CALL_TIMEOUT_MS)


def expect_tickets(page: Any, suite: RunningSuite) -> None:
    """The order's page links the tickets, and they are a PDF."""
    expect_face(page, "confirmed")
    link = page.get_by_role("link", name="Tickets as PDF")
    sync_api.expect(link).to_be_visible(timeout=CALL_TIMEOUT_MS)
    answer = page.request.get(f"{suite.url}{link.get_attribute('href')}")
    assert answer.body().startswith(b"%PDF"), answer.status


def test_a_fan_buys_the_best_seats_without_scripts(plain: Any, suite: RunningSuite) -> None:
    join(plain, suite, on_sale(suite))
    come_in(plain)
    hold_best(plain)
    sync_api.expect(plain.locator(".tickets-held li")).to_have_count(2)
    pay(plain)
    expect_tickets(plain, suite)
