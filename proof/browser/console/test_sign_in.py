"""Operators sign in with a key or a link, and out again."""

from playwright.async_api import expect

from tests.browser.console.conftest import Open
from tests.support.running.suite import RunningSuite

SESSION = "**/console/session"


async def test_a_key_signs_in_and_the_screen_signs_out(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, signed_in=False)
    key = page.get_by_label("Operator's key")
    await expect(key).to_be_focused()
    assert await key.get_attribute("autocomplete") == "current-password"
    await key.fill("a wrong key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("This key is not known.")
    await key.fill(suite.admin_key)
    await page.keyboard.press("Enter")
    await page.locator("[data-event=arena-2026] a").click()
    await expect(page).to_have_url(f"{suite.url}/console/events/arena-2026")
    await page.get_by_role("button", name="Sign out").click()
    await expect(key).to_be_visible()
    await page.reload()
    await expect(key).to_be_visible()


async def test_after_too_many_wrong_keys_the_right_one_still_signs_in(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, signed_in=False)
    await page.set_extra_http_headers({"x-forwarded-for": "203.0.113.29"})  # not the address of the other tests
    key, alert = page.get_by_label("Operator's key"), page.get_by_role("alert")
    for _ in range(6):
        await key.fill("not the key of anybody")
        async with page.expect_response(SESSION):
            await page.keyboard.press("Enter")
        await expect(alert).not_to_be_empty()
    await expect(alert).to_contain_text("Too many wrong keys")
    await key.fill(suite.admin_key)
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-event=arena-2026]")).to_be_visible()


async def test_a_link_signs_in_and_leaves_the_address(suite: RunningSuite, open_page: Open) -> None:
    link = (suite.data_dir / "console.link").read_text().strip()
    path = link.removeprefix(f"{suite.url}/console/")
    page = await open_page(suite, path, signed_in=False)
    await expect(page.locator("[data-event=arena-2026]")).to_be_visible()
    assert page.url == f"{suite.url}/console/"
    used = await open_page(suite, path, signed_in=False)
    await expect(used.get_by_role("alert")).to_contain_text("used before")
    assert used.url == f"{suite.url}/console/"
