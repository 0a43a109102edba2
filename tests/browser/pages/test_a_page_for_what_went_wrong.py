"""A link that leads nowhere, or a visit at a bad moment: people get a page, never a document for programs."""

from typing import Any

import httpx
import pytest
from playwright import sync_api

from shared.web import problem_page
from shared.web.problems import Unavailable
from tests.browser.steps import Suite
from tests.support.running.browser import NEEDS_CHROMIUM

pytestmark = NEEDS_CHROMIUM


@pytest.mark.parametrize("path", ["/nowhere", "/e/no-such-event", "/e/not;ours", "/o/short", "/static/none.js"])
def test_a_link_that_leads_nowhere_is_a_page_that_says_so(page: Any, suite: Suite, path: str) -> None:
    answer = page.goto(f"{suite.url}{path}")
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    sync_api.expect(page.get_by_role("heading")).to_have_text("Page not found")
    page.get_by_role("link", name="All events").click()
    sync_api.expect(page.locator("#events")).to_be_visible()
    program = httpx.get(f"{suite.url}{path}")
    assert (program.status_code, program.headers["content-type"]) == (404, "application/problem+json")


def test_a_page_for_a_busy_moment_tries_again_by_itself(page: Any, suite: Suite) -> None:
    asked: list[str] = []

    def busy_once(route: Any) -> None:
        asked.append(route.request.url)
        if len(asked) > 1:
            return route.fallback()
        said = Unavailable()
        return route.fulfill(
            status=503, body=problem_page.page(said), content_type=problem_page.MEDIA_TYPE,
            headers=problem_page.headers(said),
        )  # fmt: skip

    page.route("**/e/arena-2026", busy_once)
    page.goto(f"{suite.url}/e/arena-2026")
    sync_api.expect(page.get_by_role("heading")).to_have_text("One moment, please")
    sync_api.expect(page.locator("#event-name")).to_have_text("Northern Lights Live", timeout=20_000)
    assert len(asked) == 2


def test_pages_answer_a_head_as_they_answer_a_get(suite: Suite) -> None:
    for path in ("/", "/e/arena-2026", "/o/ABCDEFGH12"):
        got, head = httpx.get(f"{suite.url}{path}"), httpx.head(f"{suite.url}{path}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
