"""A room with proof of work lets a real browser in, which solves the challenge by itself and says what it does."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import run_apart
from tests.support.suite import RunningSuite

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", shutil.which("chromium")) if path and Path(path).exists()), None
)
sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture
def page() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_context().new_page()
        browser.close()


def test_a_browser_solves_the_challenge_and_joins(page: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 400_000, "most_hashes": 400_000}
    opening = suite.open_event(room={"rate_per_s": 0, "friction": rules})
    event_id = run_apart(opening)
    page.goto(f"{suite.url}/e/{event_id}")
    spoken = page.evaluate_handle("""() => {
        const heard = [];
        new MutationObserver(() => heard.push(document.getElementById('announcer').textContent))
          .observe(document.getElementById('announcer'), { childList: true, characterData: true, subtree: true });
        return heard;
    }""")
    page.locator("#join").click()
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=30_000)
    sync_api.expect(page.locator("#join-seq")).to_have_text("1")
    sync_api.expect(page.locator("#proof")).to_be_hidden()
    assert any("keeps robots out" in said for said in spoken.json_value())
    page.reload()
    sync_api.expect(page.locator("#join-seq")).to_have_text("1")
