"""The pictures of the console in `docs/images`, taken during a simulated sale: part of `make pictures`, two minutes."""

import asyncio
import sys
from typing import Any

from playwright import async_api

from tests.browser.console.conftest import DESKTOP, PHONE, WALL, figure
from tests.browser.pictures.sale import EVENT_ID, IMAGES, sale
from tests.support.browser import LAUNCH
from tests.support.running.program import Program
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

FANS, ARRIVE_OVER_S, RATE_PER_S, LATER_RATE_PER_S = 2_400, 45, 12, 15
WAITING_LEAST, WAITS_S = 900, 60
SETTLES_MS = 3_000


async def signed_in(
    browser: async_api.Browser, suite: RunningSuite, path: str, size: tuple[int, int], scheme: Any
) -> async_api.Page:
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-GB", reduced_motion="reduce"
    )
    answer = await context.request.post(f"{suite.url}/console/session", data={"key": suite.admin_key})
    assert answer.ok, await answer.text()
    page = await context.new_page()
    await page.goto(f"{suite.url}/console/{path}")
    await page.locator("[data-tile]").first.wait_for()
    return page


async def set_rate(page: async_api.Page, rate_per_s: int, reason: str) -> None:
    await page.get_by_role("navigation", name="Controls").get_by_role("button", name="Rate").click()
    await page.locator("dialog [name=rate_per_s]").fill(str(rate_per_s))
    await page.locator("dialog [name=reason]").fill(reason)
    await page.locator("dialog [data-preview] dl").wait_for()


async def line_of(page: async_api.Page, fans: int) -> None:
    """Waits until so many fans wait."""
    shown = figure(page, "Waiting")

    async def waits() -> bool:
        return int((await shown.inner_text()).replace(",", "").replace("–", "0")) >= fans

    await wait_until(waits, timeout_s=WAITS_S, interval_s=0.5)


async def take(suite: RunningSuite, simulation: Program) -> None:
    """The screen, the rate with its preview, the phone and the wall, once a line has formed."""
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(**LAUNCH)
        screen = await signed_in(browser, suite, f"events/{EVENT_ID}", DESKTOP, "dark")
        light = await signed_in(browser, suite, f"events/{EVENT_ID}", DESKTOP, "light")
        phone = await signed_in(browser, suite, f"events/{EVENT_ID}", PHONE, "light")
        wall = await signed_in(browser, suite, f"wall/{EVENT_ID}", WALL, "dark")
        simulation.start()
        await line_of(screen, WAITING_LEAST // 2)
        await set_rate(screen, LATER_RATE_PER_S, "the checkout has room")
        await screen.locator("dialog").get_by_role("button", name="Set the rate").click()
        await screen.locator("[data-obeyed]", has_text="Obeyed").wait_for()
        await screen.keyboard.press("Escape")
        await line_of(screen, WAITING_LEAST)
        await screen.wait_for_timeout(2 * SETTLES_MS)
        await screen.locator("[data-tile='Admitted']:not(.warn)").wait_for()  # nothing holds the rate back
        await screen.evaluate("document.activeElement.blur()")
        await screen.screenshot(path=IMAGES / "console.png")
        await wall.screenshot(path=IMAGES / "wall.png")
        await phone.screenshot(path=IMAGES / "console-phone.png")
        await set_rate(light, 2 * LATER_RATE_PER_S, "")
        await light.wait_for_timeout(SETTLES_MS)
        await light.evaluate("document.activeElement.blur()")
        await light.screenshot(path=IMAGES / "console-rate.png")
        await browser.close()


def main() -> int:
    with sale(rate_per_s=RATE_PER_S, fans=FANS, arrive_over_s=ARRIVE_OVER_S) as (suite, simulation):
        asyncio.run(take(suite, simulation))
    return 0


if __name__ == "__main__":
    sys.exit(main())
