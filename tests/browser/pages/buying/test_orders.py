"""The order's page while it is paid, and finding orders again: the list, the links by mail, a foreign order."""

from typing import Any

import pytest
from playwright.async_api import expect

from shared.words.words import words
from tests.browser.readability import axe_problems, layout_problems
from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import DONE, NO_PLACE, RecordedSite
from tests.browser.recorded.steps import REFERENCE
from tests.browser.states import DECLINED, ON_PROVIDER_PAGE

ORDER, PENDING = f"/orders/{REFERENCE}", {"status": "pending", "confirmed_at": None, "fulfilled_at": None}


async def open_order(page: Any, site: RecordedSite, **changes: Any) -> None:
    site.change(f"GET {ORDER}", **changes)
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await expect(page.locator("#order")).to_be_visible()


async def test_a_declined_card_is_followed_by_another(page: Any, site: RecordedSite) -> None:
    confirmed = dict(site.answers[f"GET {ORDER}"])
    await open_order(page, site, progress="your-turn", attempt=DECLINED, **PENDING)
    await expect(page.locator("#again")).to_be_hidden()
    await page.locator("#method").select_option("ok")
    site.answers |= {f"POST {ORDER}/payments": site.answers["POST /orders"], f"GET {ORDER}": confirmed}
    await page.locator("#pay-again").click()
    await expect(page.locator("#order")).to_have_attribute("data-face", "confirmed")
    assert site.bodies(f"POST {ORDER}/payments")[0]["payment"]["method"] == "ok"
    await expect(page.locator("#tickets li")).to_have_count(3)


async def test_the_providers_page_is_one_press_away(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, progress="your-turn", attempt=ON_PROVIDER_PAGE, **PENDING)
    await expect(page.locator("#act")).to_have_attribute("href", ON_PROVIDER_PAGE["checkout_url"])


async def test_a_cancelled_order_leads_back_to_the_event(page: Any, site: RecordedSite) -> None:
    await open_order(page, site, progress="your-turn", attempt=DECLINED, **PENDING)
    site.answers[f"POST {ORDER}/cancel"] = site.change(f"GET {ORDER}", status="cancelled", progress=None)
    await page.locator("#cancel").click()
    await expect(page.locator("#order")).to_have_attribute("data-face", "cancelled")
    await page.locator("#again").click()
    await page.wait_for_url("**/e/hall")


async def test_the_steps_of_a_payment_move_nothing_below(page: Any, site: RecordedSite) -> None:
    steps = {"waiting": "Step 1 of 3", "paying": "Step 2 of 3", "confirming": "Step 3 of 3", "cancelling": "We ask"}
    await page.set_viewport_size({"width": 480, "height": 900})
    tops = set()
    for progress, text in steps.items():
        await open_order(page, site, progress=progress, attempt=None, **PENDING)
        await expect(page.locator("#progress")).to_contain_text(text)
        tops.add((await page.locator(".order-facts").bounding_box())["y"])
    assert len(tops) == 1


async def test_the_address_is_corrected(page: Any, site: RecordedSite) -> None:
    await open_order(page, site)
    meant = problem("email-likely-mistyped", suggestion="ada@hotmail.com")
    changed = site.answers[f"GET {ORDER}"] | {"customer": {"name": "Ada", "email": "ada@hotmail.com"}}
    site.answers[f"POST {ORDER}/email"] = lambda asked: meant if asked.body["email"] == "ada@hotnail.com" else changed
    await page.locator("#address-change summary").click()
    await page.locator("#email").fill("ada@hotnail.com")
    await page.locator("#address-save").click()
    await page.locator("#email-take").click()
    await expect(page.locator("#address-text")).to_have_text(words("en")("address_mails_to", email="ada@hotmail.com"))


async def test_a_browser_lists_its_orders(page: Any, site: RecordedSite) -> None:
    await page.goto(f"{site.url}/o")
    entry = page.locator("#orders a")
    await expect(entry).to_contain_text(f"confirmed · €210.00 · {REFERENCE}")
    assert [*await layout_problems(page), *await axe_problems(page)] == []
    await entry.click()
    await expect(page.locator("#order-event")).to_have_text("A show")


@pytest.mark.parametrize("language", ["de", "ar"])
async def test_a_browser_without_keys_asks_for_the_links(page: Any, site: RecordedSite, language: str) -> None:
    text = words(language)
    site.answers |= {"GET /orders": NO_PLACE, "POST /orders/links": DONE}
    await page.set_viewport_size({"width": 320, "height": 800})
    await page.goto(f"{site.url}/o?lang={language}")
    await expect(page.locator("#none")).to_have_text(text("links_none"))
    await page.locator("#email").fill("ada@example.org")
    await page.locator("#links-ask").click()
    await expect(page.locator("#links-sent")).to_be_visible()
    assert site.bodies("POST /orders/links") == [{"email": "ada@example.org"}]
    assert [*await layout_problems(page), *await axe_problems(page)] == []
    site.answers["POST /orders/links"] = problem("mail-disabled")
    await page.locator("#links-ask").click()
    await expect(page.locator("#trouble-text")).to_have_text(text("mail_disabled"))


async def test_a_foreign_order_leads_to_the_list(page: Any, site: RecordedSite) -> None:
    site.answers[f"GET {ORDER}"] = problem("not-found", "No such order.")
    await page.goto(f"{site.url}/o/{REFERENCE}")
    await page.locator("#lost").get_by_role("link", name="Your orders").click()
    await expect(page.get_by_role("heading", name="Your orders")).to_be_visible()
