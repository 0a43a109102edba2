"""A family buys at a running suite: an adult, a child, and a wheelchair user with a companion, on a phone by keyboard,
and without scripts, in five languages. Each ticket has its price, and the page of the order says its type.
"""

import uuid
from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import LANGUAGES, words
from tests.browser.keyboard import tab_to
from tests.browser.plain_steps import expect_face, join
from tests.browser.readability import axe_problems
from tests.browser.steps import CALL_TIMEOUT_MS, put_on_sale
from tests.support.browser import NewPage
from tests.support.running.suite import RunningSuite

NAMES = ["Adult", "Child", "Companion", "Wheelchair"]
EVENT: dict[str, Any] = {
    "price_types": [
        {"type_id": "adult", "name": "Adult"},
        {"type_id": "child", "name": "Child", "percent": 50, "quota": 10, "per_order": 3, "proof": "An ID card"},
        {"type_id": "chair", "name": "Wheelchair", "percent": 50, "traits": ["wheelchair"]},
        {"type_id": "carer", "name": "Companion", "price_minor": 0, "companion_of": ["chair"], "traits": ["companion"]},
    ],
    "sections": [
        {"section_id": "A", "name": "Stalls", "kind": "seated", "rows": 4, "seats_per_row": 8, "price_minor": 5000,
         "traits": {"wheelchair": ["4-1", "4-8"], "companion": ["4-2", "4-7"]}},
        {"section_id": "GA1", "name": "Gallery", "kind": "ga", "capacity": 50, "price_minor": 3000},
    ],
    "fees": [{"name": "Booking fee", "per": "ticket", "amount_minor": 100}],
}  # fmt: skip
TOTAL_MINOR = 5100 + 2600 + 2600


async def press(page: Any, selector: str, times: int = 1) -> None:
    await tab_to(page, selector)
    for _ in range(times):
        await page.keyboard.press("Enter")


async def bought_types(suite: RunningSuite, event_id: str) -> tuple[list[str], int]:
    async with suite.operator() as admin:
        answer = await admin.get("/admin/orders", params={"event_id": event_id})
    [order] = answer.raise_for_status().json()["orders"]
    return sorted(line["type_name"] for line in order["lines"]), order["total_minor"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_family_buys_on_a_phone_by_keyboard(new_page: NewPage, suite: RunningSuite, language: str) -> None:
    event_id, text = await put_on_sale(suite, **EVENT), words(language)
    page = await new_page(viewport={"width": 390, "height": 844}, reduced_motion="reduce")
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    await page.goto(f"{suite.url}/e/{event_id}")
    await press(page, "#join")
    await expect(page.locator("#choosing-title")).to_be_focused(timeout=CALL_TIMEOUT_MS)
    await press(page, "#best [data-of-type=adult] .step:first-child")
    await press(page, "#best [data-of-type=child] .step:last-child")
    await press(page, "#access summary")
    await press(page, "#access [data-of-type=wheelchair] .step:last-child")
    await press(page, "#access [data-of-type=companion] .step:last-child")
    assert await axe_problems(page) == []
    await press(page, "#best-find")
    await expect(page.locator("#held-title")).to_be_focused()
    chosen = page.locator("#held-tickets select")
    await expect(chosen).to_have_count(4)
    assert sorted([await chosen.nth(n).input_value() for n in range(4)]) == ["adult", "carer", "chair", "child"]
    assert await axe_problems(page) == []
    await tab_to(page, "#held-tickets li:has(option[value=child]:checked) select")
    await page.keyboard.press("ArrowUp")
    await expect(page.locator("#held-total")).to_have_text(text.money(5100 * 2 + 2600, "EUR"))
    await expect(page.locator("#held-tickets option[value=child]:checked")).to_have_count(0)
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#held-tickets option[value=child]:checked")).to_have_count(1)
    await expect(page.locator("#held-total")).to_have_text(text.money(TOTAL_MINOR, "EUR"))
    await tab_to(page, "#name")
    await page.keyboard.type("Ada Lovelace")
    await tab_to(page, "#email")
    await page.keyboard.type(f"ada-{uuid.uuid4().hex}@example.org")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/o/*")
    await expect(page.locator("#order")).to_have_attribute("data-face", "confirmed", timeout=CALL_TIMEOUT_MS)
    await expect(page.locator(".ticket img")).to_have_count(4, timeout=CALL_TIMEOUT_MS)
    assert sorted(await page.locator(".ticket .type").all_inner_texts()) == NAMES
    await expect(page.locator(".ticket .proof")).to_have_count(1)
    assert await axe_problems(page) == []
    assert await bought_types(suite, event_id) == (NAMES, TOTAL_MINOR)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_family_buys_without_scripts(plain: Any, suite: RunningSuite, language: str) -> None:
    event_id, text = await put_on_sale(suite, **EVENT), words(language)
    await plain.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    await join(plain, suite, event_id)
    await plain.locator("form[action$='/pass'] button").click(timeout=CALL_TIMEOUT_MS)
    best = plain.locator("form:has([name=best])")
    for name in ("type.adult", "type.child", "wheelchair", "companions"):
        await best.locator(f"[name='{name}']").select_option("1")
    await best.locator(".primary").click()
    form = plain.locator("form[action$='/types']")
    await expect(form.locator("select")).to_have_count(4)
    chair = form.locator("select:has(option[value=chair]:checked)")
    await chair.select_option("adult")
    await form.locator("button").click()
    told = text("refused_companion", type="Companion", n=0, types="Wheelchair")
    await expect(plain.locator(".plain-problem")).to_have_text(told)
    await form.locator("select:has(option[value=chair])").select_option("chair")
    await form.locator("button").click()
    await expect(plain.locator(".plain-problem")).to_have_count(0)
    await plain.locator("#plain-name").fill("Ada Lovelace")
    await plain.locator("#plain-email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    await plain.locator("#plain-method").select_option("sandbox:ok")
    await plain.locator("form[action='/orders'] .primary").click()
    await plain.wait_for_url("**/o/*")
    await expect_face(plain, "confirmed")
    for name in NAMES:
        await expect(plain.locator(".plain-tickets")).to_contain_text(name)
    await expect(plain.locator(".plain-tickets")).to_contain_text("An ID card")
    assert await bought_types(suite, event_id) == (NAMES, TOTAL_MINOR)
