"""The map at each step: nothing that axe finds, targets of 24 px, no sideways scrolling, in light and dark, in forced
colours, and from right to left.
"""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from playwright import sync_api

from shared.words.words import words
from tests.browser.hall.steps import SECTIONS, another_fan, cursor, open_hall, open_section, pixels, until_painted
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.steps import CALL_TIMEOUT_MS, hold, operator, put_on_sale
from tests.support.running.suite import RunningSuite
from tests.support.wait import until

WIDTHS = (320, 390, 1440)
TARGET_PX = 24
SMALL_TARGETS = """() => [...document.querySelectorAll("#journey :is(button, a, input:not([type=checkbox]), select)")]
    .filter((node) => node.checkVisibility({visibilityProperty: true}))
    .map((node) => [node.id || node.className || node.textContent, node.getBoundingClientRect()])
    .filter(([, { width, height }]) => Math.min(width, height) < 24)
    .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)"""

STRAY_LABELS = """() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const lies = (label) => {
        const one = label.getBoundingClientRect();
        const all = box(`path.hall-section[data-section="${label.dataset.section}"]`);
        return one.left >= all.left && one.right <= all.right && one.top >= all.top && one.bottom <= all.bottom;
    };
    return [...document.querySelectorAll("button.hall-label")]
        .filter((label) => !label.dataset.lines || (label.dataset.lines !== "none" && !lies(label)))
        .map((label) => label.dataset.section);
}"""


@pytest.fixture(scope="module", params=["en", "ar"])
def still(request: Any, browser: sync_api.Browser) -> Iterator[Any]:
    """A page without motion, in English and in Arabic."""
    locale = {"en": "en-GB", "ar": "ar-EG"}[request.param]
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale=locale, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def problems(page: Any) -> list[str]:
    """Of every width and both schemes."""
    found = list[str]()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        found += [f"{width}: {problem}" for problem in [*layout_problems(page), *page.evaluate(SMALL_TARGETS)]]
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append(f"{width}: scrolls sideways")
    page.set_viewport_size({"width": 390, "height": 844})
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 390, "height": height})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {problem}" for problem in [*axe_problems(page), *contrast_problems(page)]]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 844})
    return found


def test_every_step_of_the_map_is_readable(still: Any, suite: RunningSuite) -> None:
    event_id = open_hall(still, suite)
    found = [f"overview: {problem}" for problem in problems(still)]
    open_section(still, "B")
    still.keyboard.press("Enter")
    with another_fan(suite, event_id) as other:
        other.hold("B-1-1", "B-1-2")
        found += [f"seats: {problem}" for problem in problems(still)]
    still.locator("#hall-list").click()
    sync_api.expect(still.locator("#seats .seat")).to_have_count(40)
    found += [f"list: {problem}" for problem in problems(still)]
    hold(still)
    sync_api.expect(still.locator("#held-hall")).to_be_visible()
    found += [f"held: {problem}" for problem in problems(still)]
    assert found == [], "\n".join(found)
    still.locator("#give-back").click()
    text = words(still.locator("html").get_attribute("lang"))
    sync_api.expect(still.locator("#hall-title")).to_have_text(text("hall_title"))


def colours(page: Any) -> set[tuple[int, int, int]]:
    """The colours of the canvas that at least one in five hundred of its points has."""
    image = Image.open(io.BytesIO(page.locator(".hall-view").screenshot())).convert("RGB")
    counted = image.getcolors(image.width * image.height) or []
    return {colour for n, colour in counted if n > image.width * image.height / 500}  # type: ignore[misc]


def test_the_canvas_follows_the_colours_of_the_page(page: Any, suite: RunningSuite) -> None:
    open_hall(page, suite)
    open_section(page, "B")
    light = pixels(page)
    page.emulate_media(color_scheme="dark")
    until_painted(page, light)
    page.emulate_media(color_scheme="light", forced_colors="active")
    cursor(page).blur()
    forced = colours(page)
    assert {(0, 0, 0), (255, 255, 255)} <= forced, forced
    assert not [colour for colour in forced if max(colour) - min(colour) > 100], "text and paper only"
    page.emulate_media(color_scheme="light", forced_colors="none")
    until(lambda: pixels(page) == light, what="the light colours again")


def test_focus_is_seen_and_not_hidden(page: Any, suite: RunningSuite) -> None:
    """WCAG 2.4.11: tab through the map; what has the focus is under its own middle."""
    open_hall(page, suite)
    open_section(page, "A")
    page.locator("#hall-list").focus()
    names = list[str]()
    for _ in range(9):
        hidden = page.evaluate("""() => { const node = document.activeElement;
            const { left, top, width, height } = node.getBoundingClientRect();
            const style = node.style.pointerEvents; node.style.pointerEvents = "auto";
            const found = document.elementFromPoint(left + width / 2, top + height / 2);
            node.style.pointerEvents = style;
            return found === node || node.contains(found) ? null : node.className; }""")  # fmt: skip
        assert hidden is None
        names.append(page.evaluate("document.activeElement.className + document.activeElement.id"))
        page.keyboard.press("Tab")
    assert names[:2] == ["plainhall-list", "hall-cursor"], "the list comes first"
    assert names[2:] == ["step"] * 7, "then the seats, then the buttons"


def test_each_label_lies_in_its_section_after_the_wait(page: Any, suite: RunningSuite) -> None:
    """The hall is drawn while the fan waits; its labels become buttons once the fan is called."""
    event_id = put_on_sale(suite, room={"max_active": 0}, sections=SECTIONS)
    page.goto(f"{suite.url}/e/{event_id}")
    page.locator("#join").click()
    sync_api.expect(page.locator("p.hall-label[data-lines]")).to_have_count(len(SECTIONS), timeout=CALL_TIMEOUT_MS)
    with operator(suite) as admin:
        admin.patch(f"/admin/events/{event_id}/room", json={"max_active": 10, "reason": "test"}).raise_for_status()
    sync_api.expect(page.locator("button.hall-label")).to_have_count(len(SECTIONS), timeout=CALL_TIMEOUT_MS)
    assert page.evaluate(STRAY_LABELS) == []
