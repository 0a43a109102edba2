"""Moving through a page by keyboard."""

from typing import Any

TABS_MAX = 60
FOCUSED = """() => {
    const node = document.activeElement;
    const { left, top, width, height } = node.getBoundingClientRect();
    const on_top = document.elementFromPoint(left + width / 2, top + height / 2);
    const seen = on_top && (node.contains(on_top) || on_top.closest("label")?.contains(node));
    return { id: node.id, body: node === document.body, hidden: !seen };
}"""


async def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Presses Tab until this has the focus. On the way nothing that has the focus is hidden (WCAG 2.4.11)."""
    for _ in range(TABS_MAX):
        await page.keyboard.press(key)
        focused = await page.evaluate(FOCUSED)
        assert focused["body"] or not focused["hidden"], focused
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by {key}")
