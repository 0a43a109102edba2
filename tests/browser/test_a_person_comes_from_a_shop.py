"""One person, one browser: sent from a shop to the waiting room, and back there without doing anything but join."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.shop import NGINX, guarded_shop
from tests.support.suite import RunningSuite

CHROMIUM = Path("/usr/bin/chromium")
async_api = pytest.importorskip("playwright.async_api")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM.exists() and Path(NGINX).exists()), reason="needs Chromium and nginx"),
]


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    complaints: list[str] = []
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        await browser.close()
    assert complaints == []


async def test_a_person_comes_back_to_the_page_they_wanted(page: Any, suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(room={"gate": {"waiting_room": suite.url}})
    async with guarded_shop(tmp_path, suite.port, event_id) as shop, suite.operator() as operator:
        rules = {"gate": {"waiting_room": suite.url, "return_to": [shop]}}
        room = f"/admin/queue/events/{event_id}/room"
        assert (await operator.patch(room, json=rules)).is_success
        await page.goto(f"{shop}/tickets/7?colour=red")
        await async_api.expect(page).to_have_url(f"{suite.url}/e/{event_id}")
        await page.reload()
        await page.locator("#join").click()
        await async_api.expect(page).to_have_url(f"{shop}/tickets/7?colour=red", timeout=30_000)
        await async_api.expect(page.locator("body")).to_have_text(re.compile("the shop: GET /tickets/7"))
