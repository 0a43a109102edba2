"""Moving through a page by keyboard."""

from typing import Any

from tests.support.wait import wait_until

TABS_MAX, SCROLLS_WITHIN_S = 60, 2.0
FOCUSED = """() => {
    const node = document.activeElement;
    const { left, top, width, height } = node.getBoundingClientRect();
    const { pointerEvents } = node.style;
    node.style.pointerEvents = "auto"; // what lets a finger through is seen nevertheless
    const on_top = document.elementFromPoint(left + width / 2, top + height / 2);
    node.style.pointerEvents = pointerEvents;
    const seen = on_top && (node.contains(on_top) || on_top.closest("label")?.contains(node));
    return { body: node === document.body, hidden: !seen };
}"""


async def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Presses Tab until this has the focus. On the way nothing that has the focus is hidden (WCAG 2.4.11)."""

    async def focus_is_seen() -> bool:
        focused = await page.evaluate(FOCUSED)
        return bool(focused["body"] or not focused["hidden"])

    for _ in range(TABS_MAX):
        await page.keyboard.press(key)
        await wait_until(focus_is_seen, timeout_s=SCROLLS_WITHIN_S)
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by {key}")
