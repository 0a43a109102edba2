"""The page for signing in, alone: a key, a link, and what it says when they do not work."""

import re

import pytest
from playwright.async_api import Page, expect

from shared.errors.problems import BadCredential, TooManyWrongCodes
from tests.browser.console.conftest import OpenAlone
from tests.browser.console.recorded import URL, Alone, Answer

pytestmark = pytest.mark.browser
PATH = "/console/session"


async def nobody(page: Page, alone: Alone) -> None:
    """Nobody is signed in, and the first credential is wrong."""
    wrong = Answer(401, None, BadCredential().document())
    alone.instead["GET", PATH] = [wrong]
    alone.instead["POST", PATH] = [wrong, Answer(200, None, alone.read(PATH))]
    alone.instead["DELETE", PATH] = [Answer(204, None, None)]


async def test_a_key_signs_in_and_the_screen_signs_out(alone: OpenAlone) -> None:
    desk = await alone(path="", prepare=nobody)
    page, key = desk.page, desk.page.get_by_label("Operator's key")
    await expect(key).to_be_focused()
    assert await key.get_attribute("autocomplete") == "current-password"
    await key.fill("a wrong key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("This key is not known.")
    await key.fill("the right one")
    await page.keyboard.press("Enter")
    await page.locator(f"[data-event={desk.event_id}] a").click()
    await expect(page).to_have_url(f"{URL}/console/events/{desk.event_id}")
    await page.get_by_role("button", name="Sign out").click()
    await expect(key).to_be_visible()
    assert [sent.body for sent in desk.alone.sent] == [{"key": "a wrong key"}, {"key": "the right one"}, None]


async def test_too_many_wrong_keys_are_told_in_words(alone: OpenAlone) -> None:
    desk = await alone(path="", prepare=nobody)
    desk.alone.refuse("POST", PATH, TooManyWrongCodes("Too many wrong keys. Try yours again in a moment."))
    await desk.page.get_by_label("Operator's key").fill("not the key of anybody")
    await desk.page.keyboard.press("Enter")
    await expect(desk.page.get_by_role("alert")).to_contain_text("Too many wrong keys")


async def test_a_link_signs_in_and_leaves_the_address(alone: OpenAlone) -> None:
    async def right(page: Page, found: Alone) -> None:
        await nobody(page, found)
        found.instead["POST", PATH] = [Answer(200, None, found.read(PATH))]

    desk = await alone(path="#link=a-secret", prepare=right)
    await expect(desk.page.locator(f"[data-event={desk.event_id}]")).to_be_visible()
    assert desk.page.url == f"{URL}/console/"
    assert [sent.body for sent in desk.alone.sent] == [{"link": "a-secret"}]


async def test_a_used_link_says_so(alone: OpenAlone) -> None:
    async def used(page: Page, found: Alone) -> None:
        await nobody(page, found)
        found.refuse("POST", PATH, BadCredential("This link was used before."))

    desk = await alone(path="#link=a-secret", prepare=used)
    await expect(desk.page.get_by_role("alert")).to_have_text(re.compile("used before"))
    assert desk.page.url == f"{URL}/console/"
