"""More time to choose, given by a running suite."""

from typing import Any

from playwright.async_api import expect

from tests.browser.steps import enter, put_on_sale
from tests.support.running.suite import RunningSuite


async def test_a_short_session_lasts_longer_in_the_running_suite(page: Any, suite: RunningSuite) -> None:
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 90, "price_minor": 100}
    event_id = await put_on_sale(suite, room={"session_s": 60}, sections=[floor])
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.wait_for_timeout(2_500)
    left = await page.locator("#session-clock").inner_text()
    await page.locator("#more-session").click()
    await expect(page.locator("#more-session")).to_be_hidden()
    assert await page.locator("#session-clock").inner_text() > left
    await page.reload()
    await expect(page.locator("#choosing")).to_be_visible()
