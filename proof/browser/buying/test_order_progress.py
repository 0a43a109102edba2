"""The order page shows a fan the progress of a pending order."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.steps import enter, expect_confirmed, hold_and_pay, put_on_sale, select_ga_ticket
from tests.support.running.suite import RunningSuite

STEPS = {
    "waiting": "Step 1 of 3",
    "paying": "Step 2 of 3: the payment is under way",
    "your-turn": "Step 2 of 3: the payment waits for you",
    "confirming": "Step 3 of 3",
    "cancelling": "We ask the provider",
}


@pytest.fixture
async def ordering_page(page: Any, suite: RunningSuite) -> Any:
    """A page with a GA ticket in its basket."""
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 3000}
    await page.goto(f"{suite.url}/e/{await put_on_sale(suite, sections=[floor])}")
    await enter(page)
    await select_ga_ticket(page)
    return page


async def test_the_page_shows_a_slow_payment_until_the_order_is_confirmed(ordering_page: Any) -> None:
    await hold_and_pay(ordering_page, "slow")
    progress = ordering_page.get_by_role("status").and_(ordering_page.locator("#progress"))
    await expect(progress).to_contain_text(STEPS["paying"])
    await expect_confirmed(ordering_page)
    await expect(progress).to_be_hidden()


async def test_each_step_of_an_order_has_its_text_and_moves_nothing_below(ordering_page: Any) -> None:
    state = {"status": "pending", "progress": "waiting", "confirmed_at": None, "attempt": None, "fulfilled_at": None}

    async def answer_with_state(route: Any) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), **state})

    await hold_and_pay(ordering_page, "redirect")
    await ordering_page.route(f"**/orders/{ordering_page.url.split('/')[-1]}", answer_with_state)
    await ordering_page.set_viewport_size({"width": 480, "height": 900})
    tops = set()
    for state["progress"], text in STEPS.items():
        await ordering_page.reload()
        await expect(ordering_page.locator("#progress")).to_contain_text(text)
        tops.add((await ordering_page.locator(".order-facts").bounding_box())["y"])
    assert len(tops) == 1
