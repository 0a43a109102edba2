"""A page reloaded at any stage is where it was: nothing is lost, nothing is bought twice.

The whole way by keyboard alone: every control is reached by Tab, and focus is never lost or hidden.
"""

import re
import uuid
from typing import Any

from playwright.async_api import expect

from tests.browser.keyboard import tab_to
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    SOON,
    UPDATES,
    WaitingEvent,
    enter,
    expect_confirmed,
    hold,
    join_and_wait,
    pay,
    put_on_sale,
    select_ga_ticket,
    wait_until_listed,
)
from tests.support.running.suite import RunningSuite

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}


async def test_waiting(page: Any, event: WaitingEvent) -> None:
    await join_and_wait(page, event)
    number = await page.locator("#join-seq").inner_text()
    await page.reload()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    assert await page.locator("#join-seq").inner_text() == number


async def test_choosing_holding_and_paying(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await select_ga_ticket(page)
    await hold(page)
    await page.reload()
    await expect(page.locator("#held-tickets li")).to_have_count(1, timeout=CALL_TIMEOUT_MS)
    await pay(page, "slow")
    await page.reload()
    await expect(page.locator("#order")).to_have_attribute("data-face", "processing")
    await expect_confirmed(page)
    await page.reload()
    await expect_confirmed(page)
    await expect(page.locator("#tickets li")).to_have_count(1)
    await page.go_back()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def test_an_order_whose_answer_was_lost_is_found_after_a_reload(page: Any, suite: RunningSuite) -> None:
    """The first answer is cut; the page is reloaded before its second try."""
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await select_ga_ticket(page)
    await hold(page)

    async def cut(route: Any) -> None:
        await route.fetch()
        await route.abort()

    await page.route("**/orders", cut, times=1)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    async with page.expect_event("requestfailed"):
        await page.locator("#pay").click()
    await page.reload()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#to-order").click()
    await expect_confirmed(page)
    await page.context.clear_cookies(name=re.compile("onsale_(pass|queue)_"))
    await page.reload()
    await expect_confirmed(page)


async def test_choosing_goes_on_while_the_stream_is_cut(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[FLOOR])}")
    await enter(page)
    await page.context.route(f"{UPDATES}*", lambda route: route.abort())
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    other = await (await page.context.browser.new_context()).new_page()
    await other.goto(page.url)
    await enter(other)
    await select_ga_ticket(other)
    await hold(other)
    await other.context.close()
    await expect(page.locator("#section-GA1 .left")).to_have_text("49 of 50 left", timeout=20_000)
    await select_ga_ticket(page)
    await hold(page)


SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 6, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]


async def test_a_fan_buys_two_seats_together_by_keyboard(page: Any, suite: RunningSuite) -> None:
    event_id = await put_on_sale(suite, sections=SECTIONS, starts_at=SOON)
    await page.goto(f"{suite.url}/")
    await wait_until_listed(page, event_id)
    await tab_to(page, f"#events a[href='/e/{event_id}']")
    await page.keyboard.press("Enter")
    await expect(page.locator("#join")).to_be_visible()
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#choosing-title")).to_be_focused()
    await tab_to(page, "#section-A button")
    await page.keyboard.press("Enter")
    await expect(page.locator("#seats-title")).to_be_focused()
    await tab_to(page, "#seats .seat")
    for key in ("ArrowDown", "ArrowRight", "Enter", "ArrowRight", "Space"):
        await page.keyboard.press(key)
    await expect(page.locator("#basket-count")).to_have_text("2 tickets")
    await expect(page.locator("#basket-list")).to_contain_text("row 2, seat 2 · Block A, row 2, seat 3")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#name")
    await page.keyboard.type("Ada Lovelace")
    await tab_to(page, "#email")
    await page.keyboard.type(f"ada-{uuid.uuid4().hex}@example.org")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/o/*")
    await expect_confirmed(page)
    await expect(page.locator(".ticket .code")).to_have_count(2, timeout=CALL_TIMEOUT_MS)  # moves what is below
    await tab_to(page, "#tickets-pdf")


async def test_tickets_are_given_back_and_the_line_is_left_by_keyboard(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=SECTIONS)}")
    await tab_to(page, "#join")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await tab_to(page, "#section-GA1 .step:last-of-type")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await tab_to(page, "#hold")
    await page.keyboard.press("Enter")
    await expect(page.locator("#held-title")).to_be_focused()
    await tab_to(page, "#give-back")
    await page.keyboard.press("Enter")
    await expect(page.locator("#choosing-title")).to_be_focused()
