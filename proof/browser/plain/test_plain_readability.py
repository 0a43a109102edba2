"""Pages without scripts are readable: axe finds nothing, contrast is enough in light and dark, and all fits at 320 px.

axe is a script: the browser runs it, but none of ours, and gets documents without the tags of `noscript` and without
their refreshing.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from shared.words.words import LANGUAGES
from tests.browser.plain.plain_steps import expect_face, on_sale, open_lobby
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.support.running.suite import RunningSuite
from tests.support.wait import until

WIDTHS = (320, 390, 1440)


@pytest.fixture
def unwrapped(browser: Any, suite: RunningSuite) -> Iterator[Any]:
    """A page whose scripts never arrive, and which shows what stands in `noscript`."""
    context = browser.new_context(locale="en-GB", reduced_motion="reduce")
    context.add_cookies([{"name": "onsale_plain", "value": "1", "url": suite.url}])
    page = context.new_page()

    def document(route: Any) -> None:
        response = route.fetch(max_redirects=0)
        if response.status == 303:
            return route.fulfill(response=response)
        headers = {name: value for name, value in response.headers.items() if name != "refresh"}
        body = re.sub(r"</?noscript>", "", response.text())
        return route.fulfill(response=response, headers=headers, body=body)

    page.route(re.compile(r"/(e|o)/[^/]+$|/(e|o)/[^/]+\?"), document)
    page.route("**/static/*.js", lambda route: route.abort())
    yield page
    context.close()


def check(page: Any, step: str) -> list[str]:
    problems = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 812})
        problems += [f"{step} at {width} px: {problem}" for problem in layout_problems(page)]
    page.set_viewport_size({"width": 390, "height": page.evaluate("document.documentElement.scrollHeight")})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        problems += [f"{step}, {scheme}: {each}" for each in [*contrast_problems(page), *axe_problems(page)]]
    page.emulate_media(color_scheme="light")
    return problems


def submit(page: Any, form: str) -> None:
    """Sends a form, and loads the page that it leads to once more: documents after a redirect pass by the route."""
    with page.expect_navigation():
        page.locator(f"{form} button").first.click()
    page.goto(page.url)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_step_is_readable(unwrapped: Any, suite: RunningSuite, language: str) -> None:
    page = unwrapped
    page.context.add_cookies([{"name": "onsale_lang", "value": language, "url": suite.url}])
    open_lobby(page, suite, on_sale(suite, room={"max_active": 0}))
    problems = check(page, "lobby")
    submit(page, "#join-form")
    problems += check(page, "waiting")
    event_id = on_sale(suite)
    open_lobby(page, suite, event_id)
    submit(page, "#join-form")
    until(lambda: page.goto(page.url) and page.locator("form[action$='/pass']").count(), what="the call")
    problems += check(page, "called")
    submit(page, "form[action$='/pass']")
    problems += check(page, "choosing")
    page.goto(f"{suite.url}/e/{event_id}?section=A&problem=seats-taken")
    problems += check(page, "seats")
    page.goto(f"{suite.url}/e/{event_id}")
    submit(page, "form:has(#plain-quantity)")
    problems += check(page, "held")
    page.locator("#plain-name").fill("Ada")
    page.locator("#plain-email").fill("ada@example.org")
    page.locator("#plain-method").select_option("sandbox:decline")
    submit(page, "form[action='/orders']")
    expect_face(page, "declined")
    problems += check(page, "declined")
    assert problems == [], "\n".join(problems)
