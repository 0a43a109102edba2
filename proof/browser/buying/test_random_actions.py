"""Random clicking: whatever a fan does in whatever order, the page stays whole and the books stay right.

`ONSALE_CLICKING_S` says for how long, and the seed that a failure prints repeats its actions (not their timing).
"""

import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright import async_api

from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

CLICKING_S = float(os.environ.get("ONSALE_CLICKING_S", "15"))
SEED = int(os.environ.get("ONSALE_HYPOTHESIS_SEED", "0"))
SETTLE_MS, GONE_MS = 120, 1_000
LIMIT = 3
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 6, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 12, "price_minor": 3000},
]
CONTROLS = "main button, main select, main input, main summary, .dock button, main a[href^='/e/'], main a[href^='/o/']"
WORDS = ("Ada Lovelace", "ada@example.org", "not an address", "", "1", "<b>&amp;", "x" * 300, "ثلاثة")
KEYS = ("Enter", "Space", "Escape", "Tab", "ArrowDown", "ArrowRight", "Home", "PageDown")
BROKEN = re.compile(r"\bNaN\b|\bundefined\b|\[object|\bnull\b|\{\w+\}")
STANDING = """() => ({
    steps: [...document.querySelectorAll("#journey section.card, #journey #choosing, #loading")]
        .filter((node) => !node.hidden && node.closest(".step-card") && node.parentElement.matches(".step-card"))
        .map((node) => node.id),
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    text: document.body.innerText, title: document.title,
    basket: Number(document.getElementById("basket-count")?.textContent.match(/\\d+/)?.[0] ?? 0),
})"""


@pytest.fixture
def answers(page: Any) -> list[int]:
    """The status of every answer that the page gets."""
    found: list[int] = []
    page.context.on("response", lambda response: found.append(response.status))
    return found


class Fan:
    """Somebody who does anything, one action after the other, and what must hold after each."""

    def __init__(self, page: Any, url: str, seed: int) -> None:
        self.page, self.url, self.chance, self.done = page, url, random.Random(seed), list[str]()
        self.actions: list[tuple[int, Callable[[], Awaitable[str]]]] = [
            (12, self.click), (4, self.type), (3, self.press), (2, self.choose), (1, self.reload), (1, self.go_back),
            (1, self.vanish), (1, self.return_to_event),
        ]  # fmt: skip

    async def act(self) -> None:
        weights = [weight for weight, _ in self.actions]
        [(_, action)] = self.chance.choices(self.actions, weights)
        try:
            self.done.append(await action())
        except async_api.Error:
            self.done.append(f"{action.__name__} missed")  # it went while the mouse was on its way
        await self.page.wait_for_timeout(SETTLE_MS)

    async def _one_of(self, selector: str) -> Any | None:
        shown = [node for node in await self.page.locator(selector).all() if await node.is_visible()]
        return self.chance.choice(shown) if shown else None

    async def click(self) -> str:
        node = await self._one_of(CONTROLS)
        if node is None:
            return "nothing to click"
        name = await node.evaluate("node => node.id || node.textContent.trim().slice(0, 30)")
        times = self.chance.choice((1, 1, 1, 2))
        await node.click(timeout=GONE_MS, click_count=times, force=True)
        return f"click {name} x {times}"

    async def type(self) -> str:
        node = await self._one_of("main input:not([type=checkbox])")
        if node is None:
            return "nothing to type in"
        text = self.chance.choice(WORDS)
        await node.fill(text, timeout=GONE_MS)
        return f"type {text[:20]!r} into {await node.get_attribute('id')}"

    async def press(self) -> str:
        key = self.chance.choice(KEYS)
        await self.page.keyboard.press(key)
        return f"press {key}"

    async def choose(self) -> str:
        node = await self._one_of("main select")
        if node is None:
            return "nothing to choose"
        await node.select_option(index=self.chance.randrange(await node.locator("option").count()), timeout=GONE_MS)
        return f"choose in {await node.get_attribute('id')}"

    async def reload(self) -> str:
        await self.page.reload()
        return "reload"

    async def go_back(self) -> str:
        await self.page.go_back()
        return "back"

    async def vanish(self) -> str:
        await self.page.context.set_offline(True)
        await self.page.wait_for_timeout(self.chance.choice((50, 700)))
        await self.page.context.set_offline(False)
        return "offline for a moment"

    async def return_to_event(self) -> str:
        await self.page.goto(self.url)
        return "open the event"

    async def problems(self) -> list[str]:
        if not self.page.url.startswith("http"):
            await self.page.goto(self.url)
        standing = await self.page.evaluate(STANDING)
        found = []
        if "/e/" in self.page.url and len(standing["steps"]) != 1 and not await self.page.locator("#lost").is_visible():
            found.append(f"steps shown: {standing['steps']}")
        if standing["sideways"] > 0:
            found.append(f"{standing['sideways']} px to the side")
        if broken := BROKEN.search(standing["text"]):
            found.append(f"on the page: {standing['text'][max(0, broken.start() - 40) : broken.end() + 40]!r}")
        if not standing["title"].strip():
            found.append("no title")
        if standing["basket"] > LIMIT:
            found.append(f"{standing['basket']} tickets in the basket")
        return found


@pytest.mark.timeout(CLICKING_S + 300)
async def test_random_actions_leave_the_page_whole_and_the_books_right(
    page: Any, suite: RunningSuite, answers: list[int]
) -> None:
    seed = SEED or random.SystemRandom().randrange(2**32)
    sales = {"tickets_per_order": LIMIT, "hold_ttl_s": 10, "pay_ttl_s": 10}
    event_id = await put_on_sale(suite, sections=SECTIONS, sales=sales, room={"session_s": 30, "claim_window_s": 10})
    await page.goto(f"{suite.url}/e/{event_id}")
    fan, until = Fan(page, page.url, seed), time.monotonic() + CLICKING_S
    while time.monotonic() < until:
        await fan.act()
        found = await fan.problems() or [f"status {status}" for status in answers if status >= 500]
        assert found == [], (f"seed {seed}", fan.done[-12:])
    assert len(fan.done) > CLICKING_S / 5, "it clicked at all"
    assert await suite.audit(event_id) == [], f"seed {seed}"
    orders = await page.request.get(f"{suite.url}/orders")
    for order in (await orders.json())["orders"] if orders.ok else []:
        assert order["charged_minor"] in (0, order["total_minor"]), order
