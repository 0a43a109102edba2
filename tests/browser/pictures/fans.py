"""The pictures of a fan's way in `docs/images`: waiting and two seats on a phone, and a recording of a whole purchase.

Part of `make pictures`. A crowd of simulated fans is in front; one real browser joins, waits, is called, picks two
seats on the map, pays and has tickets. The recording is what the screen showed, several times a second.
"""

import asyncio
import io
import sys
import time
from typing import Any

from PIL import Image
from playwright import async_api
from playwright.async_api import expect

from tests.browser.pictures.sale import EVENT_ID, IMAGES, sale
from tests.support.browser import LAUNCH
from tests.support.running.suite import RunningSuite

PHONE: async_api.ViewportSize = {"width": 390, "height": 760}
FANS, ARRIVE_OVER_S, RATE_PER_S, TAKES_S = 500, 10, 14, 120
SEATS_TRIED_MAX = 9
WAITING_FRAMES, STEP_MS, STILL_MS, LAST_MS, RECORDED_WIDTH, QUALITY = 14, 240, 1_400, 4_000, 300, 62


class Recording:
    """Frames of a page, each with how long it is shown, in milliseconds."""

    def __init__(self, page: async_api.Page) -> None:
        self._page = page
        self.frames: list[tuple[Image.Image, int]] = []

    async def frame(self, shown_ms: int = STEP_MS) -> None:
        shot = Image.open(io.BytesIO(await self._page.screenshot())).convert("RGB")
        height = round(shot.height * RECORDED_WIDTH / shot.width)
        self.frames.append((shot.resize((RECORDED_WIDTH, height), Image.Resampling.LANCZOS), shown_ms))

    def save(self, name: str) -> None:
        images, durations = zip(*self.frames, strict=True)
        images[0].save(
            IMAGES / name, save_all=True, append_images=images[1:], duration=list(durations), loop=0, quality=QUALITY,
            method=6,
        )  # fmt: skip


async def take(suite: RunningSuite, simulation: Any) -> None:
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(**LAUNCH)
        context = await browser.new_context(
            viewport=PHONE, device_scale_factor=2, has_touch=True, locale="en-GB", color_scheme="light"
        )  # fmt: skip
        page = await context.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        simulation.start()
        await page.wait_for_timeout(ARRIVE_OVER_S * 1_000)
        recording = Recording(page)
        await page.goto(f"{suite.url}/e/{EVENT_ID}", wait_until="networkidle")
        await recording.frame(STILL_MS)
        await page.locator("#join").tap()
        await wait(page, recording)
        await choose(page, recording)
        await buy(page, recording)
        recording.save("purchase.webp")
        await browser.close()


async def wait(page: async_api.Page, recording: Recording) -> None:
    """The line, as it moves: a few frames of it, spread over the whole wait."""
    await expect(page.locator("#waiting")).to_be_visible()
    await page.wait_for_timeout(1_500)
    await page.screenshot(path=IMAGES / "waiting.png")
    waiting = Recording(page)
    ends = time.monotonic() + TAKES_S
    while await page.locator("#waiting").is_visible() and time.monotonic() < ends:
        await waiting.frame()
        await page.wait_for_timeout(STEP_MS)
    every = max(1, len(waiting.frames) // WAITING_FRAMES)
    recording.frames += waiting.frames[::every]


async def choose(page: async_api.Page, recording: Recording) -> None:
    """Two seats on the map."""
    await expect(page.locator("#hall")).to_be_visible(timeout=TAKES_S * 1_000)
    await page.locator("#hall").scroll_into_view_if_needed()
    await page.wait_for_timeout(1_500)
    await recording.frame(STILL_MS)
    await page.locator("button.hall-label[data-section=C]").tap()
    await expect(page.locator(".hall-canvas")).to_be_visible()
    for _ in range(4):
        await page.wait_for_timeout(STEP_MS)
        await recording.frame()
    await page.locator(".hall-cursor").focus()
    await page.keyboard.press("Enter")
    for _ in range(SEATS_TRIED_MAX):
        await page.wait_for_timeout(STEP_MS)
        await recording.frame()
        if await page.locator("#basket-count").inner_text() == "2 tickets":
            break
        for key in ("ArrowRight", "Enter"):
            await page.keyboard.press(key)
    await page.screenshot(path=IMAGES / "seats.png")
    await recording.frame(STILL_MS)


async def buy(page: async_api.Page, recording: Recording) -> None:
    await page.locator("#hold").tap()
    await expect(page.locator("#held")).to_be_visible()
    await page.wait_for_timeout(600)
    await recording.frame(STILL_MS)
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill("ada@example.org")
    await page.locator("#method").select_option("ok")
    await recording.frame(STILL_MS)
    await page.locator("#pay").tap()
    await page.wait_for_url("**/o/*")
    await recording.frame(STEP_MS * 3)
    await expect(page.locator(".ticket .code")).to_have_count(2, timeout=TAKES_S * 1_000)
    await page.wait_for_timeout(1_000)
    await recording.frame(LAST_MS)


def main() -> int:
    with sale(rate_per_s=RATE_PER_S, fans=FANS, arrive_over_s=ARRIVE_OVER_S) as (suite, simulation):
        asyncio.run(take(suite, simulation))
    return 0


if __name__ == "__main__":
    sys.exit(main())
