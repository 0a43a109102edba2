"""A browser joins a room with proof of work: it solves the challenge by itself and announces what it does."""

from typing import Any

from playwright import sync_api

from tests.support.engines.engines import run_in_thread
from tests.support.running.suite import RunningSuite


def test_a_browser_solves_the_challenge_and_joins(page: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 400_000, "most_hashes": 400_000}
    event_id = run_in_thread(suite.open_event(room={"rate_per_s": 0, "friction": rules}))
    page.goto(f"{suite.url}/e/{event_id}")
    announcements = page.evaluate_handle("""() => {
        const texts = [];
        new MutationObserver(() => texts.push(document.getElementById('announcer').textContent))
          .observe(document.getElementById('announcer'), { childList: true, characterData: true, subtree: true });
        return texts;
    }""")
    page.locator("#join").click()
    sync_api.expect(page.locator("#waiting")).to_be_visible(timeout=30_000)
    sync_api.expect(page.locator("#join-seq")).to_have_text("1")
    sync_api.expect(page.locator("#proof")).to_be_hidden()
    assert any("keeps robots out" in text for text in announcements.json_value())
    page.reload()
    sync_api.expect(page.locator("#join-seq")).to_have_text("1")
