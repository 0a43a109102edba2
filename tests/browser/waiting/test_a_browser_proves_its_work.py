"""A room with proof of work admits a real browser, which solves the challenge by itself and says what it does."""

from typing import Any

from playwright import sync_api

from tests.support.engines.engines import run_apart
from tests.support.running.browser import NEEDS_CHROMIUM
from tests.support.running.suite import RunningSuite

pytestmark = NEEDS_CHROMIUM


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
