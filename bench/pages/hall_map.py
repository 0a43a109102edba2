"""P13: the map of a hall of 20,000 seats on a phone's processor, beside the list of one section.

A page of headless Chromium with a phone's screen, which loads the sources of the pages as they are.

Times are processor time of the page's main thread, times the slowness of a phone. Chromium's own throttling spins by
the clock on the wall, so that whatever else the machine does would count.
"""

import statistics
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from playwright.async_api import Browser, CDPSession, Page, Route, async_playwright

from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed
from bench.pages.sample_hall import SECTION_SEATS, SampleHall
from tests.support.programs import find_program

ROOT = Path(__file__).parents[2]
SOURCES, STYLES = ROOT / "web/fans", ("styles.css", "seats.css", "hall/hall.css")
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


SEATS, QUICK_SEATS, SLOWNESS = 20_000, 2_000, 4.0
DRAWN_MS, PAN_MS, CHANGES_MS, HEAP_MB = 200, 20, 4, 12
ALL, MOVABLE, NEAR = 1.02, 1.5, 12.0  # all seats as dots, most of them, and a few hundred with their shapes
CHANGED, FRAMES = 200, 80
HEADINGS = ("what", "map, all seats", "list, one section")


def hall_map() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P13",
        title=f"the map of {SEATS:,} seats",
        settings=[
            f"Headless Chromium with a phone's screen (390 by 844, three pixels a point). Times are processor time of "
            f"the page's main thread, times {SLOWNESS:g} for a slow phone, without that of an empty frame.",
            "Drawn: from data to the overview, and from there to all seats. Moved: 80 frames, each by nine points, "
            "with most seats as dots, and near, where seats have shapes and numbers. Changed: 200 seats in one frame, "
            "median of 20.",
            f"The list draws one section of {SECTION_SEATS} seats, as it did before there was a map, and is given the "
            "same changes by its next answer.",
            "Heap: what the map adds after garbage collection, typed arrays included.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures both sides in the same page, round by round; the medians."""
    hall = SampleHall(QUICK_SEATS if effort.quick else SEATS)
    rounds = [await one_round(hall) for _ in range(effort.rounds)]
    found = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    state_bytes = len(hall.state)
    rows: list[tuple[str, ...]] = [
        ("overview drawn", f"{found['overview']:.0f} ms", ""),
        ("seats drawn", f"{found['drawn']:.0f} ms", f"{found['list_drawn']:.0f} ms"),
        ("a frame of moving, all seats seen, p95", f"{found['pan']:.1f} ms", ""),
        ("a frame of moving, near, p95", f"{found['pan_near']:.1f} ms", ""),
        ("painted anew, most seats seen", f"{found['pan_painted']:.0f} ms", ""),
        ("painted anew, near", f"{found['pan_near_painted']:.0f} ms", ""),
        ("200 seats change", f"{found['changes']:.1f} ms", f"{found['list_changes']:.1f} ms"),
        ("heap", f"{found['heap']:.1f} MB", ""),
        ("bytes of all states", f"{state_bytes:,}", f"{hall.list_bytes:,} in {len(hall.names)} requests"),
    ]
    beside = f"one section of {SECTION_SEATS} by the list"
    drawn = found["overview"] + found["drawn"]
    claims = [
        Claim(f"P13 map of {len(hall.codes):,} seats drawn, a phone {SLOWNESS:g} × slower", f"{drawn:.0f} ms",
              f"{beside} {found['list_drawn']:.0f} ms", ratio(found["list_drawn"], drawn), f"at most {DRAWN_MS} ms"),
        Claim("P13 a frame while the map moves, p95", f"{found['pan']:.1f} ms", "a frame of the screen 16.7 ms",
              ratio(16.7, found["pan"]), f"at most {PAN_MS} ms"),
        Claim("P13 200 seats change", f"{found['changes']:.1f} ms", f"{beside} {found['list_changes']:.1f} ms",
              ratio(found["list_changes"], found["changes"]), f"at most {CHANGES_MS} ms"),
        Claim("P13 heap of the map", f"{found['heap']:.1f} MB", "none", "–", f"at most {HEAP_MB} MB"),
        Claim("P13 states of all seats", f"{state_bytes:,} bytes", f"the list's pages {hall.list_bytes:,} bytes",
              f"{hall.list_bytes / state_bytes:,.0f} × less"),
    ]  # fmt: skip
    return Figures(HEADINGS, rows, claims, [f"the page counted {len(hall.codes):,} seats"])


def ratio(theirs: float, ours: float) -> str:
    return f"{theirs / max(ours, 0.1):.1f} ×"


async def one_round(hall: SampleHall) -> dict[str, float]:
    """Both sides in one page: the list first, then the map."""
    async with phone_page(SLOWNESS) as page:
        await page.give("hall", {
            "geometry": hall.geometry, "details": hall.details, "state": b64encode(hall.state).decode(),
        })  # fmt: skip
        await page.give("page", hall.first_page)
        await page.call("load")
        clock = Clock(page, shown_ms=await _median(page, "rest"), frame_ms=await _median(page, "restOnce"))
        found = {"list_drawn": await clock.shown("drawList")}
        found["list_changes"] = statistics.median(await clock.frames("changeList", 20, seats=CHANGED))
        before = await page.heap_mb()
        found["overview"] = await clock.shown("drawOverview")
        found["drawn"] = await clock.shown("drawSeats", factor=ALL)
        found["changes"] = statistics.median(await clock.frames("change", 20, seats=CHANGED))
        for name, factor in (("pan", MOVABLE), ("pan_near", NEAR)):
            found[f"{name}_painted"] = await clock.shown("drawSeats", factor=factor)
            found[name] = sorted(await clock.frames("pan", FRAMES))[int(0.95 * FRAMES)]
        found["heap"] = await page.heap_mb() - before
        return found


@dataclass(frozen=True)
class Clock:
    """Processor time of steps, without that of being asked and of the frames they wait for."""

    page: PhonePage
    shown_ms: float
    frame_ms: float

    async def shown(self, step: str, **given: float) -> float:
        return max(0.0, await self.page.call(step, given) - self.shown_ms)

    async def frames(self, step: str, frames: int, **given: float) -> list[float]:
        return [max(0.0, await self.page.call(step, {"n": n, **given}) - self.frame_ms) for n in range(frames)]


async def _median(page: PhonePage, step: str) -> float:
    return statistics.median([await page.call(step) for _ in range(FRAMES // 4)])
