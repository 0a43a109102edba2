"""A fan is redirected from a shop to the waiting room, and returned to the shop with one click: joining."""

import re
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.support.programs import needs
from tests.support.providers.shop import guarded_shop
from tests.support.running.suite import RunningSuite

pytestmark = needs("nginx")


async def test_a_fan_returns_to_the_requested_page_of_the_shop(page: Any, suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(room={"gate": {"waiting_room": suite.url}})
    async with guarded_shop(tmp_path, suite.port, event_id) as shop, suite.operator() as operator:
        rules = {"gate": {"waiting_room": suite.url, "return_to": [shop]}}
        room = f"/admin/events/{event_id}/room"
        assert (await operator.patch(room, json=rules)).is_success
        await page.goto(f"{shop}/tickets/7?colour=red")
        await expect(page).to_have_url(f"{suite.url}/e/{event_id}")
        await page.reload()
        await page.locator("#join").click()
        await expect(page).to_have_url(f"{shop}/tickets/7?colour=red", timeout=30_000)
        await expect(page.locator("body")).to_have_text(re.compile("the shop: GET /tickets/7"))
