"""Steps on the map of the hall, and what a page's map says of its seats."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import expect

from onsale.client import Fan
from tests.browser.steps import CALL_TIMEOUT_MS, enter, put_on_sale
from tests.support.running.suite import RunningSuite, fan_of
from tests.support.wait import wait_until

FRONT = {"name": "Front", "rows": [1, 1], "price_minor": 9000}
SECTIONS: list[dict[str, Any]] = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 6, "seats_per_row": 10, "price_minor": 5000,
     "price_levels": [FRONT]},
    {"section_id": "B", "name": "Block B", "kind": "seated", "rows": 5, "seats_per_row": 8, "price_minor": 4000},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000},
]  # fmt: skip


TARGET_PX = 24
AVAILABLE, IN_A_BASKET = "available$", "in somebody's basket$"


async def open_hall(page: Any, suite: RunningSuite, **event: Any) -> str:
    """A new event whose tickets the page may choose; its id."""
    event_id = await put_on_sale(suite, **{"sections": SECTIONS, **event})
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await expect(page.locator("#hall")).to_be_visible(timeout=CALL_TIMEOUT_MS)
    return event_id


def section(page: Any, section_id: str) -> Any:
    """The section's button in the overview."""
    return page.locator(f"button.hall-label[data-section={section_id}]")


async def open_section(page: Any, section_id: str) -> None:
    await section(page, section_id).click()
    await expect(page.locator(".hall-canvas")).to_be_visible()


def cursor(page: Any) -> Any:
    return page.locator(".hall-cursor")


async def expect_cursor(page: Any, *words: str) -> None:
    """The name of the seat cursor has these words."""
    for text in words:
        await expect(cursor(page)).to_have_attribute("aria-label", re.compile(text), timeout=CALL_TIMEOUT_MS)


async def middle(locator: Any) -> tuple[float, float]:
    box = await locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def seat_px(page: Any) -> float:
    """The side of a seat, as far as it is larger than the least target."""
    width: float = (await cursor(page).bounding_box())["width"]
    return width


async def pick_two_by_touch(page: Any) -> tuple[str, str]:
    """Comes near block A by tapping, and picks two seats; their names."""
    label, hint = section(page, "A"), page.locator("#hall-hint")
    await label.scroll_into_view_if_needed()
    await page.touchscreen.tap(*await middle(label))
    await expect(hint).to_contain_text("Block A:")
    if "nearer" in await hint.inner_text():
        await page.touchscreen.tap(*await middle(cursor(page)))
    await expect(hint).to_have_text("Block A: Choose your seats.")
    assert await seat_px(page) > TARGET_PX
    x, y = await middle(cursor(page))
    await page.touchscreen.tap(x, y)
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    await page.touchscreen.tap(x + await seat_px(page) * 1.2, y)
    await expect(page.locator("#basket-count")).to_have_text("2 tickets")
    first, second = (await page.locator("#basket-list").inner_text()).split(" · ")
    return first, second


async def pixels(page: Any) -> str:
    """What the canvas shows and where it lies, as text to compare."""
    shown: str = await page.locator(".hall-canvas").evaluate("""(node) => new Promise((resume) =>
        requestAnimationFrame(() => requestAnimationFrame(() => resume(node.style.transform + node.toDataURL()))))""")
    return shown


async def until_painted(page: Any, before: str) -> str:
    """The canvas once it shows something else than before."""

    async def painted() -> bool:
        return await pixels(page) != before

    await wait_until(painted)
    return await pixels(page)


@asynccontextmanager
async def another_fan(suite: RunningSuite, event_id: str) -> AsyncIterator[Fan]:
    """A fan without a page, who may hold."""
    async with suite.browser() as browser:
        yield await fan_of(browser, event_id).come_in()
