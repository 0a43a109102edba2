"""A page of headless Chromium with a phone's screen, which loads the sources of the pages as they are.

Times are processor time of the page's main thread, times the slowness of a phone. Chromium's own throttling spins by
the clock on the wall, so that whatever else the machine does would count.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from playwright.async_api import Browser, CDPSession, Page, Route, async_playwright

from tests.support.programs import find_program

ROOT = Path(__file__).parents[2]
SOURCES, STYLES = ROOT / "web/fans", ("styles.css", "hall/hall.css")
ORIGIN, SCRIPT = "http://pages.invalid", "map_page.js"
SPIN_MS = 500
TYPES = {".js": "text/javascript", ".css": "text/css"}
DOCUMENT = """<!doctype html><html lang="en" dir="ltr"><meta charset="utf-8"><title>Bench</title>{styles}
<body><main><div id="journey" data-step="choosing"><ul id="price-legend"></ul><div class="hall"><div id="seats"
class="seats"></div></div><div id="place"></div></div><p id="announcer"></p></main></body></html>"""


class PhonePage:
    """A page, and the clock of its main thread."""

    def __init__(self, page: Page, devtools: CDPSession, process: int, slowness: float) -> None:
        self.page, self._devtools, self._process, self._slowness = page, devtools, process, slowness

    async def call(self, step: str, given: Any = None) -> float:
        """Processor time of a step of `map_page.js`, with that of being asked and of the frames it waits for."""
        before = _cpu_ms(self._process)
        await self.page.evaluate("([step, given]) => bench[step](given)", [step, given])
        return (_cpu_ms(self._process) - before) * self._slowness

    async def give(self, name: str, data: Any) -> None:
        """Puts parsed data into the page, before the clock starts."""
        await self.page.evaluate(
            "([name, text]) => { bench[name] = JSON.parse(text); }", [name, orjson.dumps(data).decode()]
        )

    async def heap_mb(self) -> float:
        """Megabytes of the page's heap in use, arrays outside it included."""
        await self._devtools.send("HeapProfiler.collectGarbage")
        used: dict[str, Any] = await self._devtools.send("Runtime.getHeapUsage")
        return float(used["usedSize"] + used["backingStorageSize"]) / 1e6


@asynccontextmanager
async def phone_page(slowness: float) -> AsyncIterator[PhonePage]:
    """A phone's page, whose clock runs `slowness` times faster than this machine's."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 390, "height": 844}, device_scale_factor=3)
        texts = (ROOT / "shared/words/en.json").read_text()
        await page.add_init_script(f"globalThis.texts = {texts}; globalThis.PROBLEM_TEXTS = null;")
        await page.route(f"{ORIGIN}/**", _answer)
        await page.goto(f"{ORIGIN}/")
        devtools = await page.context.new_cdp_session(page)
        await page.evaluate(
            f"async () => {{ globalThis.bench = await import('{ORIGIN}/{SCRIPT}'); bench = {{ ...bench }}; }}"
        )
        yield PhonePage(page, devtools, await _renderer(browser, page), slowness)
        await browser.close()


async def _renderer(browser: Browser, page: Page) -> int:
    """The process of the page: the renderer that works while the page spins."""
    devtools = await browser.new_browser_cdp_session()
    processes = (await devtools.send("SystemInfo.getProcessInfo"))["processInfo"]
    renderers = [int(each["id"]) for each in processes if each["type"] == "renderer"]
    before = {each: _cpu_ms(each) for each in renderers}
    await page.evaluate("ms => { const end = performance.now() + ms; while (performance.now() < end); }", SPIN_MS)
    return max(renderers, key=lambda each: _cpu_ms(each) - before[each])


def _cpu_ms(process: int) -> float:
    """Processor time of a process' main thread so far."""
    return int(Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]) / 1e6


async def _answer(route: Route) -> None:
    name = route.request.url.removeprefix(f"{ORIGIN}/")
    if not name:
        styles = "".join(f'<link rel="stylesheet" href="/{style}">' for style in STYLES)
        await route.fulfill(body=DOCUMENT.format(styles=styles), content_type="text/html")
    else:
        path = Path(__file__).parent / name if name == SCRIPT else SOURCES / name
        await route.fulfill(body=path.read_bytes(), content_type=TYPES[path.suffix])
