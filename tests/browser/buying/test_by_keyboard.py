"""The whole way by keyboard alone: every control is reached by Tab, and focus is never lost or hidden."""

import uuid
from typing import Any

from playwright import sync_api

from tests.browser.steps import CALL_TIMEOUT_MS, SOON, expect_confirmed, put_on_sale, wait_until_listed
from tests.support.running.suite import RunningSuite

TABS_MAX = 60
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 6, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]
FOCUSED = """() => {
    const node = document.activeElement;
    const { left, top, width, height } = node.getBoundingClientRect();
    const on_top = document.elementFromPoint(left + width / 2, top + height / 2);
    const seen = on_top && (node.contains(on_top) || on_top.closest("label")?.contains(node));
    return { id: node.id, body: node === document.body, hidden: !seen };
}"""


def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Presses Tab until this has the focus. On the way nothing that has the focus is hidden (WCAG 2.4.11)."""
    for _ in range(TABS_MAX):
        page.keyboard.press(key)
        focused = page.evaluate(FOCUSED)
        assert focused["body"] or not focused["hidden"], focused
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by {key}")


def test_a_fan_buys_two_seats_together_by_keyboard(page: Any, suite: RunningSuite) -> None:
    event_id = put_on_sale(suite, sections=SECTIONS, starts_at=SOON)
    page.goto(f"{suite.url}/")
    wait_until_listed(page, event_id)
    tab_to(page, f"#events a[href='/e/{event_id}']")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#join")).to_be_visible()
    tab_to(page, "#join")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    sync_api.expect(page.locator("#choosing-title")).to_be_focused()
    tab_to(page, "#section-A button")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#seats-title")).to_be_focused()
    tab_to(page, "#seats .seat")
    for key in ("ArrowDown", "ArrowRight", "Enter", "ArrowRight", "Space"):
        page.keyboard.press(key)
    sync_api.expect(page.locator("#basket-count")).to_have_text("2 tickets")
    sync_api.expect(page.locator("#basket-list")).to_contain_text("row 2, seat 2 · Block A, row 2, seat 3")
    tab_to(page, "#hold")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#held-title")).to_be_focused()
    tab_to(page, "#name")
    page.keyboard.type("Ada Lovelace")
    tab_to(page, "#email")
    page.keyboard.type(f"ada-{uuid.uuid4().hex}@example.org")
    page.keyboard.press("Enter")
    page.wait_for_url("**/o/*")
    expect_confirmed(page)
    sync_api.expect(page.locator(".ticket .code")).to_have_count(2, timeout=CALL_TIMEOUT_MS)  # moves what is below
    tab_to(page, "#tickets-pdf")


def test_tickets_are_given_back_and_the_line_is_left_by_keyboard(page: Any, suite: RunningSuite) -> None:
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=SECTIONS)}")
    tab_to(page, "#join")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#choosing")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    tab_to(page, "#section-GA1 .step:last-of-type")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#basket-count")).to_have_text("1 ticket")
    tab_to(page, "#hold")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#held-title")).to_be_focused()
    tab_to(page, "#give-back")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#choosing-title")).to_be_focused()
