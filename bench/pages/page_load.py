"""P14: the event's page on a slow phone and a slow network, beside an empty page; and how fast it answers touches."""

import statistics
from typing import Any

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed
from tests.browser.steps import put_on_sale
from tests.support.programs import find_program
from tests.support.running.suite import RunningSuite, running_suite

SLOWNESS, LATENCY_MS, BYTES_PER_S = 4, 150, 1_600_000 / 8
FCP_MS, LCP_MS, INP_MS, CLS = 1_000, 1_500, 200, 0.1
CALL_MS = 60_000
PHONE: ViewportSize = {"width": 390, "height": 844}
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 10, "seats_per_row": 20, "price_minor": 4000},
    *({"section_id": f"S{n}", "name": f"Section {n}", "kind": "ga", "capacity": 500, "price_minor": 3000 + 100 * n}
      for n in range(6)),
]  # fmt: skip
EMPTY = "<!doctype html><html lang='en'><meta charset='utf-8'><title>Empty</title><p>An empty page"
OBSERVE = """
window.vitals = { lcp: 0, cls: 0, inputs: [] };
const watch = (type, take, more) =>
  new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true, ...more });
watch("largest-contentful-paint", (one) => { vitals.lcp = one.startTime; });
let window_ = { first: -1e9, last: -1e9, sum: 0 };
watch("layout-shift", ({ startTime: at, value, hadRecentInput }) => {
  if (hadRecentInput) return;
  if (at - window_.last > 1000 || at - window_.first > 5000) window_ = { first: at, last: at, sum: 0 };
  Object.assign(window_, { last: at, sum: window_.sum + value });
  vitals.cls = Math.max(vitals.cls, window_.sum);
});
watch("event", (one) => { if (one.interactionId) vitals.inputs.push(one.duration); }, { durationThreshold: 16 });
"""
READ = """() => ({ ...vitals, fcp: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0 })"""


def page_load() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P14",
        title="the event's page on a slow phone",
        settings=[
            f"Headless Chromium with a phone's screen, its processor slowed {SLOWNESS} times, {LATENCY_MS} ms to the "
            "server and back, 1.6 Mbit/s. Times are of the clock on the wall, in a browser without cache.",
            "First and largest contentful paint of the event's page and of an empty page from the same server.",
            "Interactions: from a touch to the next frame, over a purchase: join, choose two seats, hold, details. The "
            "slowest of each round.",
            "Layout shift as the field counts it: the largest sum within five seconds without a pause of one.",
        ],
        find=find,
    )


async def find(_: Testbed, effort: Effort) -> Figures:
    """Measures both pages in turn, round by round; the medians."""
    with running_suite() as suite:
        event_id = await put_on_sale(suite, sections=SECTIONS)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
            rounds = [await one_round(browser, suite, event_id) for _ in range(effort.rounds)]
            await browser.close()
    found = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return Figures(("what", "the event's page", "an empty page"), _rows(found), _claims(found))


def _rows(found: dict[str, float]) -> list[tuple[str, ...]]:
    return [
        ("first contentful paint", f"{found['fcp']:,.0f} ms", f"{found['empty_fcp']:,.0f} ms"),
        ("largest contentful paint", f"{found['lcp']:,.0f} ms", f"{found['empty_lcp']:,.0f} ms"),
        ("layout shift of the first view", f"{found['cls']:.3f}", ""),
        ("layout shift over the purchase", f"{found['journey_cls']:.3f}", ""),
        ("slowest interaction of the purchase", f"{found['inp']:,.0f} ms", ""),
    ]


def _claims(found: dict[str, float]) -> list[Claim]:
    def compared(name: str) -> tuple[str, str]:
        return f"an empty page {found[f'empty_{name}']:,.0f} ms", f"{found[name] / found[f'empty_{name}']:.1f} ×"

    return [
        Claim("P14 first contentful paint, slow phone and network", f"{found['fcp']:,.0f} ms", *compared("fcp"),
              f"at most {FCP_MS:,} ms"),
        Claim("P14 largest contentful paint", f"{found['lcp']:,.0f} ms", *compared("lcp"), f"at most {LCP_MS:,} ms"),
        Claim("P14 slowest interaction of a purchase", f"{found['inp']:,.0f} ms", "none", "–", f"at most {INP_MS} ms"),
        Claim("P14 layout shift over a purchase", f"{found['journey_cls']:.3f}", "none", "–", f"at most {CLS}"),
    ]  # fmt: skip


async def one_round(browser: Browser, suite: RunningSuite, event_id: str) -> dict[str, float]:
    """Both pages, each in a browser's context of its own, and a purchase."""
    url = f"{suite.url}/e/{event_id}"
    empty = await _load(browser, url, empty=True)
    page, found = await _open(browser, url)
    await buy(page)
    vitals = await page.evaluate(READ)
    await page.context.close()
    return {
        "fcp": found["fcp"], "lcp": found["lcp"], "cls": found["cls"], "inp": max(vitals["inputs"], default=0),
        "journey_cls": vitals["cls"], "empty_fcp": empty["fcp"], "empty_lcp": empty["lcp"] or empty["fcp"],
    }  # fmt: skip


async def _load(browser: Browser, url: str, *, empty: bool) -> dict[str, Any]:
    page, found = await _open(browser, url, empty=empty)
    await page.context.close()
    return found


async def _open(browser: Browser, url: str, *, empty: bool = False) -> tuple[Page, dict[str, Any]]:
    """The page, loaded, and its vitals so far."""
    context = await browser.new_context(viewport=PHONE, has_touch=True, device_scale_factor=3, locale="en-GB")
    page = await context.new_page()
    await page.add_init_script(OBSERVE)
    if empty:
        await page.route(url, lambda route: route.fulfill(body=EMPTY, content_type="text/html"))
    devtools = await context.new_cdp_session(page)
    await devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWNESS})
    await devtools.send("Network.emulateNetworkConditions", {
        "offline": False, "latency": LATENCY_MS, "downloadThroughput": BYTES_PER_S, "uploadThroughput": BYTES_PER_S,
    })  # fmt: skip
    await page.goto(url, wait_until="networkidle")
    return page, await page.evaluate(READ)


async def buy(page: Page) -> None:
    """A purchase by touch, up to the button that pays."""
    await page.locator("#join").tap()
    await page.locator("#choosing").wait_for(timeout=CALL_MS)
    free = "#seats .seat[data-status=available] >> nth={}"
    for selector in ("#section-A button", free.format(0), free.format(1), "#seats-back", "#hold"):
        await page.locator(selector).tap()
    await page.locator("#held").wait_for()
    await page.locator("#name").tap()
    await page.keyboard.type("Ada Lovelace")
    await page.locator("#email").tap()
    await page.keyboard.type("ada@example.org")
