"""Whole ways through a running suite, from the door to the tickets; `tests/browser/pages` tries each page alone."""

import re
from typing import Any

from playwright.async_api import expect

from tests.browser.hall_steps import SECTIONS, another_fan, cursor, expect_cursor, pick_two_by_touch
from tests.browser.steps import (
    CALL_TIMEOUT_MS,
    enter,
    expect_confirmed,
    hold,
    hold_and_pay,
    pay,
    put_on_sale,
    select_ga_ticket,
)
from tests.support.browser import NewPage
from tests.support.running.suite import RunningSuite

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 5000}


async def test_seats_on_the_map_with_a_reload_at_each_step(page: Any, suite: RunningSuite) -> None:
    """Nothing is lost and nothing is bought twice; what another fan holds is seen."""
    event_id = await put_on_sale(suite, room={"max_active": 0}, sections=SECTIONS)
    await page.goto(f"{suite.url}/e/{event_id}")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.reload()
    await expect(page.locator("#join-seq")).to_have_text("1")
    async with suite.operator() as admin:
        await admin.patch(f"/admin/events/{event_id}/room", json={"max_active": 10, "reason": "test"})
    await expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.reload()
    await expect(page.locator("#hall")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    picked = await pick_two_by_touch(page)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": ["A-1-1"]})
        await cursor(page).focus()
        await page.keyboard.press("Home")
        await expect_cursor(page, "Row 1, seat 1,", "in somebody's basket$")
    await hold(page)
    await page.reload()
    await expect(page.locator("#held-tickets li span")).to_have_text(list(picked), timeout=CALL_TIMEOUT_MS)
    await expect(page.locator("#held-hall circle")).to_have_count(2)
    await pay(page, "slow")
    await page.reload()
    await expect(page.locator("#order")).to_have_attribute("data-face", "processing")
    await expect_confirmed(page)
    await page.reload()
    await expect(page.locator("#tickets li")).to_have_count(2)
    await page.go_back()
    await expect(page.locator("#to-order")).to_be_visible(timeout=CALL_TIMEOUT_MS)


async def put_priced_on_sale(suite: RunningSuite) -> str:
    """An open event with fees and taxes; the code EARLY takes 20 % off."""
    event_id = await put_on_sale(
        suite, sections=[FLOOR],
        fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 150},
              {"name": "Order fee", "per": "order", "percent": "2.5"}],
        taxes=[{"name": "VAT", "percent": 19}],
    )  # fmt: skip
    async with suite.operator() as admin:
        code = await admin.put(f"/admin/orders/events/{event_id}/promo-codes/EARLY", json={"percent": 20})
        assert code.is_success
    return event_id


async def test_general_admission_with_every_fee_a_promo_code_and_a_second_card(page: Any, suite: RunningSuite) -> None:
    await page.goto(f"{suite.url}/e/{await put_priced_on_sale(suite)}")
    await expect(page.locator("#event-from")).to_have_text("from €52.75")
    await enter(page)
    await select_ga_ticket(page)
    await expect(page.locator("#basket-total")).to_have_text("€52.75")
    await hold(page)
    await page.locator("#promo").fill("early")
    await page.locator("#promo-apply").click()
    await expect(page.locator("#held-total")).to_have_text("€42.50")
    lines = await page.locator("#bill li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "Tickets €50.00", "Promo code EARLY (20 %) -€10.00", "Booking fee €1.50", "Order fee (2.5 %) €1.00",
        "Includes VAT (19 %) €6.79",
    ]  # fmt: skip
    await pay(page, "decline")
    await expect(page.locator("#retry")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    await page.locator("#method").select_option("ok")
    await page.locator("#pay-again").click()
    await expect_confirmed(page)
    await expect(page.locator("#total")).to_have_text("€42.50")
    codes = page.get_by_alt_text(re.compile("to show at the door"))
    await expect(codes).to_have_count(1)
    await expect(codes.first).to_have_js_property("complete", True)
    assert await codes.first.evaluate("image => image.naturalWidth") > 0
    await open_by_mailed_link(page, suite)


async def open_by_mailed_link(page: Any, suite: RunningSuite) -> None:
    """Opens the order in a browser without its cookie, by the link that a mail contains."""
    reference = await page.locator("#reference").inner_text()
    cookies = {cookie["name"]: cookie["value"] for cookie in await page.context.cookies()}
    await page.context.clear_cookies()
    await page.goto("about:blank")
    await page.goto(f"{suite.url}/o/{reference}#key={cookies[f'onsale_order_{reference}']}")
    await expect_confirmed(page)
    assert "#" not in page.url
    await page.reload()
    await expect(page.locator("#reference")).to_have_text(reference)


async def test_the_last_ticket_is_paid_on_the_providers_page_and_then_it_is_sold_out(
    page: Any, new_page: NewPage, suite: RunningSuite
) -> None:
    event_id = await put_on_sale(suite, sections=[FLOOR | {"capacity": 1}])
    await page.goto(f"{suite.url}/e/{event_id}")
    late = await new_page()
    await late.goto(f"{suite.url}/e/{event_id}")
    await expect(late.locator("#join")).to_be_visible()
    await enter(page)
    await page.locator("#best-quantity").select_option("5")
    await page.locator("#best-find").click()
    await expect(page.locator("#trouble-text")).to_contain_text("of these tickets")
    await select_ga_ticket(page)
    await hold_and_pay(page, "redirect")
    order_url = page.url
    await page.locator("#act").click()
    await page.get_by_role("button", name="Pay").click()
    await page.wait_for_url(order_url)
    await expect_confirmed(page)
    await expect(late.locator("#lobby-title")).to_have_text("Sold out", timeout=CALL_TIMEOUT_MS)
    await expect(late.locator("#join")).to_be_hidden()
    await expect(late.locator("#section-GA1 .left")).to_have_text("Sold out")
