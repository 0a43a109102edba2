"""Finding an order again: this browser's orders, the links by mail, the calendar file."""

from typing import Any

import httpx
import pytest
from playwright import sync_api

from shared.words.words import words
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.steps import enter, expect_confirmed, hold, pay, put_on_sale
from tests.support.running.suite import RunningSuite

SECTIONS = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}]


def buy(page: Any, suite: RunningSuite, name: str) -> str:
    """Buys one ticket; returns the order's reference."""
    event_id = put_on_sale(suite, name=name, venue="Polar Arena", sections=SECTIONS)
    page.goto(f"{suite.url}/e/{event_id}")
    enter(page)
    page.locator("#section-GA1 .step >> nth=1").click()
    hold(page)
    pay(page)
    expect_confirmed(page)
    return str(page.url.rsplit("/", 1)[1])


def test_a_browser_lists_its_orders_and_each_has_a_calendar_file(page: Any, suite: RunningSuite) -> None:
    bought = [buy(page, suite, name) for name in ("First Night", "Second Night")]
    with page.expect_download() as download:
        page.locator("#calendar").click()
    assert "SUMMARY;LANGUAGE=en:Second Night" in download.value.path().read_text()
    page.get_by_role("link", name="Your orders").first.click()
    entries = page.locator("#orders a")
    sync_api.expect(entries).to_have_count(2)
    sync_api.expect(entries.nth(0)).to_contain_text("Second Night")
    sync_api.expect(entries.nth(1)).to_contain_text(f"confirmed · €30.00 · {bought[0]}")
    assert [*layout_problems(page), *axe_problems(page)] == []
    entries.nth(1).click()
    sync_api.expect(page.locator("#order-event")).to_have_text("First Night")


@pytest.mark.parametrize("language", ["de", "ar"])
def test_a_browser_without_keys_asks_for_the_links(page: Any, suite: RunningSuite, language: str) -> None:
    text = words(language)
    page.set_viewport_size({"width": 320, "height": 800})
    page.goto(f"{suite.url}/o?lang={language}")
    sync_api.expect(page.locator("#none")).to_have_text(text("links_none"))
    asked: list[Any] = []

    def accept(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(status=204)

    page.route("**/orders/links", accept)
    page.locator("#email").fill("ada@example.org")
    page.locator("#links-ask").click()
    sync_api.expect(page.locator("#links-sent")).to_be_visible()
    assert asked == [{"email": "ada@example.org"}]
    assert [*layout_problems(page), *axe_problems(page)] == []
    page.unroute("**/orders/links")
    page.locator("#links-ask").click()
    sync_api.expect(page.locator("#trouble-text")).to_have_text(text("mail_disabled"))


def test_a_foreign_order_leads_to_the_list(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/o/ABCDEFGH2345")
    page.locator("#lost").get_by_role("link", name="Your orders").click()
    sync_api.expect(page.get_by_role("heading", name="Your orders")).to_be_visible()
    assert httpx.get(f"{suite.url}/orders").status_code == 401
