"""Every state of the pages is readable, and does what axe cannot check of WCAG 2.2: contrast in light and dark, no text
cut, focus in sight, targets large enough.
"""

from typing import Any

import pytest
from playwright import async_api

from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.recorded.site import RecordedSite
from tests.browser.states import STATES, MockedPage
from tests.support.browser import NewPage

PHONE: async_api.ViewportSize = {"width": 390, "height": 844}
TABS_MAX = 40
TARGET_MIN_PX = 24
# WCAG 2.2, 1.4.12: what a reader may set.
SPACED = """* { line-height: 1.5 !important; letter-spacing: .12em !important; word-spacing: .16em !important }
p { margin-bottom: 2em !important }"""
ADOPT = "css => { const s = new CSSStyleSheet(); s.replaceSync(css); document.adoptedStyleSheets = [s] }"
FOCUSED = """() => {
    const node = document.activeElement;
    if (node === document.body) return null;
    const { left, top, width, height } = node.getBoundingClientRect();
    const points = [.1, .5, .9].flatMap((x) => [.1, .5, .9].map((y) => [left + width * x, top + height * y]));
    const seen = points.some(([x, y]) => {
        const on = document.elementFromPoint(x, y);
        return on && (node.contains(on) || on.closest("label")?.contains(node));
    });
    return { name: `${node.tagName} #${node.id} ${node.textContent.trim().slice(0, 30)}`, seen };
}"""
# A link within a sentence is exempt, and so is what has 24 px of free space around its middle.
SMALL_TARGETS = """(min) => {
    const all = [...document.querySelectorAll("a[href], button, input, select, summary, [role=gridcell]")]
        .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 1);
    const middle = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    const near = (one, other) => {
        const [x, y] = middle(one.getBoundingClientRect());
        const { left, right, top, bottom } = other.getBoundingClientRect();
        return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom)) < min / 2;
    };
    const inSentence = (node) => node.matches("p a, li a") && getComputedStyle(node).display === "inline";
    return all.filter((node) => {
        const { width, height } = node.getBoundingClientRect();
        const label = node.closest("label")?.getBoundingClientRect();
        const small = Math.min(width, height) < min && !(label && label.height >= min);
        return small && !inSentence(node) && all.some((other) => other !== node && near(node, other));
    }).map((node) => `${node.tagName} #${node.id} ${node.textContent.trim().slice(0, 30)}`);
}"""
INVISIBLE_CONTROLS = """() => [...document.querySelectorAll("button, .button, input, select, .seat")]
    .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 1)
    .filter((node) => {
        const style = getComputedStyle(node);
        const edge = parseFloat(style.borderTopWidth) > 0 || parseFloat(style.borderBottomWidth) > 0;
        const words = node.textContent.trim() || node.tagName === "INPUT" || node.tagName === "SELECT";
        return !edge && !words;
    }).map((node) => `${node.tagName} #${node.id}`)"""
MOVING = """document.getAnimations().filter(({ playState, effect }) =>
    playState === "running" && effect.getComputedTiming().duration > 50).length"""


@pytest.fixture
async def mocked(site: RecordedSite, new_page: NewPage) -> MockedPage:
    return MockedPage(await new_page(reduced_motion="reduce"), site)


async def hidden_focuses(page: Any) -> list[str]:
    """What has the focus and cannot be seen, on the way through the page by Tab."""
    await page.evaluate("document.activeElement.blur()")
    hidden: list[str] = []
    for _ in range(TABS_MAX):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(FOCUSED)
        if focused is None:
            break
        if not focused["seen"]:
            hidden.append(f"hidden focus: {focused['name']}")
    return hidden


@pytest.mark.parametrize("state", STATES)
async def test_a_page_state_meets_what_axe_cannot_check(mocked: MockedPage, state: str) -> None:
    page, found = mocked.page, list[str]()
    await STATES[state](mocked)
    found += [f"small target: {name}" for name in await page.evaluate(SMALL_TARGETS, TARGET_MIN_PX)]
    found += ["something moves"] if await page.evaluate(MOVING) else []
    found += await hidden_focuses(page)
    await page.evaluate(ADOPT, SPACED)
    found += [f"spaced out: {problem}" for problem in await layout_problems(page)]
    await page.evaluate("() => { document.adoptedStyleSheets = [] }")
    await page.emulate_media(forced_colors="active")
    found += [f"invisible in forced colours: {name}" for name in await page.evaluate(INVISIBLE_CONTROLS)]
    await page.emulate_media(forced_colors="none")
    assert found == [], "\n".join(found)


BAD_STYLES = {
    "small targets": "#leave, #tell-me { width: 9px; height: 9px; min-height: 0; padding: 0; position: fixed; top: 0 }",
    "a cover": "body::after { content: ''; position: fixed; z-index: 9; inset: 0; background: red }",
    "motion": "#leave { animation: turn 2s infinite !important }",
    "no edge": "#leave { border: 0; min-width: 40px; min-height: 40px }",
}


async def test_the_checks_find_what_they_are_for(mocked: MockedPage) -> None:
    await STATES["waiting"](mocked)
    page = mocked.page
    await page.evaluate(ADOPT, BAD_STYLES["small targets"])
    assert await page.evaluate(SMALL_TARGETS, TARGET_MIN_PX)
    await page.evaluate(ADOPT, BAD_STYLES["a cover"])
    assert await hidden_focuses(page)
    await page.evaluate(ADOPT, BAD_STYLES["motion"])
    assert await page.evaluate(MOVING)
    await page.evaluate("document.getElementById('leave').textContent = ''")
    await page.evaluate(ADOPT, BAD_STYLES["no edge"])
    assert await page.evaluate(INVISIBLE_CONTROLS)
    await page.evaluate("() => { document.adoptedStyleSheets = [] }")


DEFAULT_FONT_PX = 16
LAYOUTS = {
    "desktop, fonts twice as large": (1280, 2 * DEFAULT_FONT_PX),
    "phone, fonts twice as large": (375, 2 * DEFAULT_FONT_PX),
    "narrowest screen": (320, DEFAULT_FONT_PX),
    "desktop": (1440, DEFAULT_FONT_PX),
}
SMALL_PHONE: async_api.ViewportSize = {"width": 375, "height": 812}


@pytest.fixture
async def on_a_phone(site: RecordedSite, new_page: NewPage) -> MockedPage:
    page = await new_page(viewport=SMALL_PHONE, timezone_id="America/Bogota", reduced_motion="reduce")
    return MockedPage(page, site)


@pytest.mark.parametrize("state", STATES)
async def test_a_page_state_has_enough_contrast_and_fits_every_layout(on_a_phone: MockedPage, state: str) -> None:
    page, problems = on_a_phone.page, []
    await page.set_viewport_size(SMALL_PHONE)
    await STATES[state](on_a_phone)
    devtools = await page.context.new_cdp_session(page)
    for name, (width, size_px) in LAYOUTS.items():
        await page.set_viewport_size({"width": width, "height": SMALL_PHONE["height"]})
        await devtools.send("Page.setFontSizes", {"fontSizes": {"standard": size_px}})
        problems += [f"{name}: {problem}" for problem in await layout_problems(page)]
    await devtools.send("Page.setFontSizes", {"fontSizes": {"standard": DEFAULT_FONT_PX}})
    await page.set_viewport_size(SMALL_PHONE)
    page_height_px = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": SMALL_PHONE["width"], "height": page_height_px})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        problems += [f"{scheme}: {problem}" for problem in [*await contrast_problems(page), *await axe_problems(page)]]
    await page.emulate_media(color_scheme="light")
    await devtools.detach()
    assert problems == [], "\n".join(problems)
