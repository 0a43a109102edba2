"""Pages without scripts are readable: axe finds nothing, contrast is enough in light and dark, and all fits at 320 px.

axe is a script: the browser runs it, but none of ours, and gets documents without the tags of `noscript` and without
their refreshing.
"""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.words.words import LANGUAGES
from tests.browser.plain_steps import expect_face, on_sale, open_lobby
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

WIDTHS = (320, 390, 1440)


@pytest.fixture
async def unwrapped(chromium: Any, suite: RunningSuite) -> AsyncIterator[Any]:
    """A page whose scripts never arrive, and which shows what stands in `noscript`."""
    context = await chromium.new_context(locale="en-GB", reduced_motion="reduce")
    await context.add_cookies([{"name": "onsale_plain", "value": "1", "url": suite.url}])
    page = await context.new_page()

    async def document(route: Any) -> None:
        response = await route.fetch(max_redirects=0)
        if response.status == 303:
            return await route.fulfill(response=response)
        headers = {name: value for name, value in response.headers.items() if name != "refresh"}
        body = re.sub(r"</?noscript>", "", await response.text())
        return await route.fulfill(response=response, headers=headers, body=body)

    await page.route(re.compile(r"/(e|o)/[^/]+$|/(e|o)/[^/]+\?"), document)
    await page.route("**/static/*.js", lambda route: route.abort())
    yield page
    await context.close()


async def check(page: Any, step: str) -> list[str]:
    problems = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 812})
        problems += [f"{step} at {width} px: {problem}" for problem in await layout_problems(page)]
    await page.set_viewport_size({"width": 390, "height": await page.evaluate("document.documentElement.scrollHeight")})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        problems += [
            f"{step}, {scheme}: {each}" for each in [*await contrast_problems(page), *await axe_problems(page)]
        ]
    await page.emulate_media(color_scheme="light")
    return problems


async def submit(page: Any, form: str) -> None:
    """Sends a form, and loads the page that it leads to once more: documents after a redirect pass by the route."""
    async with page.expect_navigation():
        await page.locator(f"{form} button").first.click()
    await page.goto(page.url)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_step_is_readable(unwrapped: Any, suite: RunningSuite, language: str) -> None:
    page = unwrapped
    await page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    await open_lobby(page, suite, await on_sale(suite, room={"max_active": 0}))
    problems = await check(page, "lobby")
    await submit(page, "#join-form")
    problems += await check(page, "waiting")
    event_id = await on_sale(suite)
    await open_lobby(page, suite, event_id)
    await submit(page, "#join-form")

    async def is_called() -> bool:
        await page.goto(page.url)
        return bool(await page.locator("form[action$='/pass']").count())

    await wait_until(is_called)
    problems += await check(page, "called")
    await submit(page, "form[action$='/pass']")
    problems += await check(page, "choosing")
    await page.goto(f"{suite.url}/e/{event_id}?section=A&problem=seats-taken")
    problems += await check(page, "seats")
    await page.goto(f"{suite.url}/e/{event_id}")
    await submit(page, "form:has(#plain-quantity)")
    problems += await check(page, "held")
    await page.locator("#plain-name").fill("Ada")
    await page.locator("#plain-email").fill("ada@example.org")
    await page.locator("#plain-method").select_option("sandbox:decline")
    await submit(page, "form[action='/orders']")
    await expect_face(page, "declined")
    problems += await check(page, "declined")
    assert problems == [], "\n".join(problems)
