"""A page reloaded at any stage is where it was: nothing is lost, nothing is bought twice."""

import re
from typing import Any

from playwright.async_api import expect

from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    UPDATES,
    WaitingEvent,
    enter,
    expect_confirmed,
    hold,
    join_and_wait,
    pay,
    put_on_sale,
    select_ga_ticket,
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
