"""Checks that the texts of a page are readable: contrast by WCAG 2.2, and layout. Contrast is measured on a screenshot
without texts, so gradients and half-transparent layers behind a text count.
"""

import io
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
INSPECTION = (Path(__file__).parent / "readability.js").read_text()
ADOPT = "css => { const s = new CSSStyleSheet(); s.replaceSync(css); document.adoptedStyleSheets = [s] }"
WITHOUT_TEXT = (
    "*, *::before, *::after { -webkit-text-fill-color: transparent !important; "
    "text-decoration-color: transparent !important; caret-color: transparent !important }"
)
TEXT_MIN, LARGE_TEXT_MIN, CONTROL_MIN = 4.5, 3.0, 3.0
LARGE_PX, LARGE_BOLD_PX, BOLD = 24, 18.66, 700
ATTEMPTS_MAX = 20
IGNORED_SHARE = 0.05  # of the pixels, which may be an edge or a rounded corner
Colour = tuple[float, float, float]
Box = dict[str, float]


def luminance(colour: Colour) -> float:
    parts = [v / 255 / 12.92 if v / 255 <= 0.04045 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Colour, other: Colour) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def blend(colour: list[float], opacity: float, behind: Colour) -> Colour:
    alpha = colour[3] * opacity
    r, g, b = (alpha * front + (1 - alpha) * back for front, back in zip(colour[:3], behind, strict=True))
    return r, g, b


class Screenshot:
    """The page without its texts."""

    def __init__(self, png: bytes) -> None:
        self._image = Image.open(io.BytesIO(png)).convert("RGB")

    @classmethod
    async def of(cls, page: Any) -> "Screenshot":
        await page.evaluate(ADOPT, WITHOUT_TEXT)
        png = await page.screenshot(scale="css")
        await page.evaluate("() => { document.adoptedStyleSheets = [] }")
        return cls(png)

    def colours(self, box: Box) -> list[tuple[int, Colour]]:
        """The colours within the box, with their numbers of pixels."""
        width, height = self._image.size
        left, top = max(0, round(box["left"])), max(0, round(box["top"]))
        right, bottom = min(width, round(box["right"])), min(height, round(box["bottom"]))
        if right <= left or bottom <= top:
            return []
        part = self._image.crop((left, top, right, bottom))
        return [(n, colour) for n, colour in part.getcolors(part.width * part.height) or []]  # type: ignore[misc]

    def at(self, x: float, y: float) -> Colour | None:
        width, height = self._image.size
        if not (0 <= x < width and 0 <= y < height):
            return None
        r, g, b = self._image.getpixel((int(x), int(y)))  # type: ignore[misc]
        return r, g, b

    def min_contrast(self, box: Box, colour: list[float], opacity: float) -> float:
        """The least contrast of a colour with the pixels of the box, ignoring a few."""
        ratios = sorted((contrast(blend(colour, opacity, behind), behind), n) for n, behind in self.colours(box))
        counted, total = 0, sum(n for _, n in ratios)
        for ratio, n in ratios:
            counted += n
            if counted > IGNORED_SHARE * total:
                return ratio
        return 21.0


async def _inspect(page: Any) -> tuple[Any, Screenshot]:
    """Elements of the page and a screenshot of the same moment: text added in between would move what is below."""
    for _ in range(ATTEMPTS_MAX):
        elements, screenshot = await page.evaluate("inspection.elements()"), await Screenshot.of(page)
        if await page.evaluate("inspection.elements()") == elements:
            return elements, screenshot
    raise AssertionError("the page keeps changing")


async def contrast_problems(page: Any) -> list[str]:
    """A message for each text, control and focus outline with low contrast. The window must be as high as the page."""
    await page.evaluate(INSPECTION)
    await page.evaluate("document.activeElement.blur()")
    elements, screenshot = await _inspect(page)
    problems = []
    for text in elements["texts"]:
        large = text["size"] >= LARGE_PX or (text["size"] >= LARGE_BOLD_PX and text["weight"] >= BOLD)
        problems += _text_problems(screenshot, text, LARGE_TEXT_MIN if large else TEXT_MIN)
    for mark in elements["marks"]:
        problems += _text_problems(screenshot, mark, CONTROL_MIN)
    problems += [f"{_name(control)}: its edge has {ratio:.2f}" for control in elements["controls"]
              if (ratio := _edge_contrast(screenshot, control["rect"])) < CONTROL_MIN]  # fmt: skip
    problems += [f"{_name(bar)}: its ends differ by {ratio:.2f}" for bar in elements["bars"]
              if (ratio := _bar_contrast(screenshot, bar["rect"])) < CONTROL_MIN]  # fmt: skip
    await page.keyboard.press("Tab")
    focuses = await page.evaluate("inspection.focuses()")
    problems += [f"{_name(focus)}: its focus outline has {ratio:.2f}" for focus in focuses
              if (ratio := _outline_contrast(screenshot, focus)) < CONTROL_MIN]  # fmt: skip
    return problems


def _name(element: dict[str, Any]) -> str:
    return f"{element['name']} “{element.get('text', '')}”"


def _text_problems(screenshot: Screenshot, text: dict[str, Any], ratio_min: float) -> list[str]:
    ratio = min(screenshot.min_contrast(rect, text["colour"], text["opacity"]) for rect in text["rects"])
    return [f"{_name(text)}: {ratio:.2f}, at least {ratio_min}"] if ratio < ratio_min else []


def _edge_contrast(screenshot: Screenshot, box: Box) -> float:
    """The second lowest of four contrasts: at the middle of each side, border or face against the surroundings."""
    x, y = (box["left"] + box["right"]) / 2, (box["top"] + box["bottom"]) / 2
    sides = [(x, box["top"], 0, 1), (x, box["bottom"], 0, -1), (box["left"], y, 1, 0), (box["right"], y, -1, 0)]
    ratios = []
    for at_x, at_y, dx, dy in sides:
        around = screenshot.at(at_x - 3 * dx, at_y - 3 * dy)
        faces = [screenshot.at(at_x + step * dx, at_y + step * dy) for step in (-1, 0, 1, 2, 5)]
        if around is not None:
            ratios.append(max((contrast(around, face) for face in faces if face is not None), default=1.0))
    return sorted(ratios)[1] if len(ratios) > 1 else 21.0


def _bar_contrast(screenshot: Screenshot, box: Box) -> float:
    y = (box["top"] + box["bottom"]) / 2
    first, last = screenshot.at(box["left"] + 5, y), screenshot.at(box["right"] - 6, y)
    return contrast(first, last) if first and last else 21.0


def _outline_contrast(screenshot: Screenshot, focus: dict[str, Any]) -> float:
    """The median contrast of an outline with the pixels it is drawn on."""
    if focus["style"] == "none" or focus["width"] < 2:
        return 1.0
    out, box = focus["offset"] + focus["width"] / 2, focus["rect"]
    shares = [n / 10 for n in range(1, 10)]
    xs = [box["left"] + share * (box["right"] - box["left"]) for share in shares]
    ys = [box["top"] + share * (box["bottom"] - box["top"]) for share in shares]
    points = [(x, side) for x in xs for side in (box["top"] - out, box["bottom"] + out)]
    points += [(side, y) for y in ys for side in (box["left"] - out, box["right"] + out)]
    behind = [colour for x, y in points if (colour := screenshot.at(x, y)) is not None]
    ratios = sorted(contrast(blend(focus["colour"], 1, colour), colour) for colour in behind)
    return ratios[len(ratios) // 2] if ratios else 21.0


async def layout_problems(page: Any) -> list[str]:
    """A message for each text that is cut, covered, or makes the page scroll sideways."""
    await page.evaluate(INSPECTION)
    await page.evaluate(
        "new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume)))"
    )  # after a resize
    messages: list[str] = await page.evaluate("inspection.layoutProblems()")
    return messages


async def axe_problems(page: Any) -> list[str]:
    """A message for each element in which axe finds a violation of WCAG."""
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]
