"""A browser joins a room with proof of work: it solves the challenge by itself and announces what it does."""

from typing import Any

from playwright.async_api import expect

from tests.support.running.suite import RunningSuite


async def test_a_browser_solves_the_challenge_and_joins(page: Any, suite: RunningSuite) -> None:
    rules = {"proof_of_work": "on", "least_hashes": 400_000, "most_hashes": 400_000}
    event_id = await suite.open_event(room={"rate_per_s": 0, "friction": rules})
    await page.goto(f"{suite.url}/e/{event_id}")
    announcements = await page.evaluate_handle("""() => {
        const texts = [];
        new MutationObserver(() => texts.push(document.getElementById('announcer').textContent))
          .observe(document.getElementById('announcer'), { childList: true, characterData: true, subtree: true });
        return texts;
    }""")
    await page.locator("#join").click()
    await expect(page.locator("#waiting")).to_be_visible(timeout=30_000)
    await expect(page.locator("#join-seq")).to_have_text("1")
    await expect(page.locator("#proof")).to_be_hidden()
    assert any("keeps robots out" in text for text in await announcements.json_value())
    await page.reload()
    await expect(page.locator("#join-seq")).to_have_text("1")
