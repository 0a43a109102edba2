"""One person watches an order that is under way and sees which step it is at."""

from typing import Any

import pytest
from playwright import sync_api

from tests.browser.steps import Suite, hold_and_pay, is_confirmed, join, pick_on_the_floor, put_on_sale
from tests.support.running.browser import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM
STEPS = {
    "waiting": "Step 1 of 3",
    "paying": "Step 2 of 3: the payment is under way",
    "your-turn": "Step 2 of 3: the payment waits for you",
    "confirming": "Step 3 of 3",
    "cancelling": "We ask the provider",
}


@pytest.fixture
def buyer(page: Any, suite: Suite) -> Any:
    """A page with a ticket in its basket."""
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 9, "price_minor": 3000}
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=[floor])}")
    join(page)
    pick_on_the_floor(page)
    return page


def test_a_fan_who_looks_at_a_slow_payment_is_told_so_until_it_is_done(buyer: Any) -> None:
    hold_and_pay(buyer, "slow")
    standing = buyer.get_by_role("status").and_(buyer.locator("#progress"))
    sync_api.expect(standing).to_contain_text(STEPS["paying"])
    is_confirmed(buyer)
    sync_api.expect(standing).to_be_hidden()


def test_each_step_of_an_order_is_told_in_words_and_nothing_below_moves(buyer: Any) -> None:
    now = {"status": "pending", "progress": "waiting", "confirmed_at": None, "attempt": None, "fulfilled_at": None}

    def at_a_step(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), **now})

    hold_and_pay(buyer, "redirect")
    buyer.route(f"**/orders/{buyer.url.split('/')[-1]}", at_a_step)
    buyer.set_viewport_size({"width": 480, "height": 900})
    tops = set()
    for now["progress"], words in STEPS.items():
        buyer.reload()
        sync_api.expect(buyer.locator("#progress")).to_contain_text(words)
        tops.add(buyer.locator(".order-facts").bounding_box()["y"])
    assert len(tops) == 1
