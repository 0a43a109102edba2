"""Whether the texts of a page are readable: contrast by WCAG 2.2, measured on the pixels behind each text, and whether
it fits. The background of a text is photographed without it, so gradients and half-transparent layers count.
"""

import io
from pathlib import Path
from typing import Any

from PIL import Image

LOOKS = (Path(__file__).parent / "looks.js").read_text()
WITHOUT_TEXT = (
    "*, *::before, *::after { -webkit-text-fill-color: transparent !important; "
    "text-decoration-color: transparent !important; caret-color: transparent !important }"
)
TEXT, LARGE_TEXT, PART = 4.5, 3.0, 3.0
LARGE_PX, LARGE_BOLD_PX, BOLD = 24, 18.66, 700
MOMENTS_MAX = 20
FEW = 0.05  # of the pixels may be something else: an edge, a rounded corner
Colour = tuple[float, float, float]
Box = dict[str, float]


def luminance(colour: Colour) -> float:
    parts = [v / 255 / 12.92 if v / 255 <= 0.04045 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Colour, other: Colour) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def painted(colour: list[float], opacity: float, behind: Colour) -> Colour:
    alpha = colour[3] * opacity
    r, g, b = (alpha * mine + (1 - alpha) * its for mine, its in zip(colour[:3], behind, strict=True))
    return r, g, b


class Photo:
    """The page without its texts."""

    def __init__(self, page: Any) -> None:
        page.evaluate("css => { const s = new CSSStyleSheet(); s.replaceSync(css); document.adoptedStyleSheets = [s] }",
                      WITHOUT_TEXT)  # fmt: skip
        self._image = Image.open(io.BytesIO(page.screenshot(scale="css"))).convert("RGB")
        page.evaluate("() => { document.adoptedStyleSheets = [] }")

    def colours(self, box: Box) -> list[tuple[int, Colour]]:
        """How often each colour stands within."""
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

    def least(self, box: Box, colour: list[float], opacity: float) -> float:
        """The contrast that all but a few pixels have at least."""
        found = sorted((contrast(painted(colour, opacity, behind), behind), n) for n, behind in self.colours(box))
        passed, all_of_them = 0, sum(n for _, n in found)
        for ratio, n in found:
            passed += n
            if passed > FEW * all_of_them:
                return ratio
        return 21.0


def _at_one_moment(page: Any) -> tuple[Any, Photo]:
    """What stands where, and the photo of it: a line that came in between would have moved all below it."""
    for _ in range(MOMENTS_MAX):
        seen, photo = page.evaluate("looks.seen()"), Photo(page)
        if page.evaluate("looks.seen()") == seen:
            return seen, photo
    raise AssertionError("the page does not come to rest")


def hard_to_read(page: Any) -> list[str]:
    """A sentence for each text, part and focus with too little contrast. The window must be as high as the page."""
    page.evaluate(LOOKS)
    page.evaluate("document.activeElement.blur()")
    seen, photo = _at_one_moment(page)
    wrong = []
    for text in seen["texts"]:
        large = text["size"] >= LARGE_PX or (text["size"] >= LARGE_BOLD_PX and text["weight"] >= BOLD)
        wrong += _texts(photo, text, LARGE_TEXT if large else TEXT)
    for mark in seen["marks"]:
        wrong += _texts(photo, mark, PART)
    wrong += [f"{_name(part)}: its edge has {ratio:.2f}" for part in seen["controls"]
              if (ratio := _edge(photo, part["rect"])) < PART]  # fmt: skip
    wrong += [f"{_name(bar)}: its ends differ by {ratio:.2f}" for bar in seen["bars"]
              if (ratio := _ends(photo, bar["rect"])) < PART]  # fmt: skip
    page.keyboard.press("Tab")
    wrong += [f"{_name(one)}: its focus has {ratio:.2f}" for one in page.evaluate("looks.focuses()")
              if (ratio := _outline(photo, one)) < PART]  # fmt: skip
    return wrong


def _name(part: dict[str, Any]) -> str:
    return f"{part['who']} “{part.get('text', '')}”"


def _texts(photo: Photo, text: dict[str, Any], least: float) -> list[str]:
    ratio = min(photo.least(rect, text["colour"], text["opacity"]) for rect in text["rects"])
    return [f"{_name(text)}: {ratio:.2f}, at least {least}"] if ratio < least else []


def _edge(photo: Photo, box: Box) -> float:
    """Of the middles of four sides, the second worst: how far border or face stand out from what is around."""
    x, y = (box["left"] + box["right"]) / 2, (box["top"] + box["bottom"]) / 2
    sides = [(x, box["top"], 0, 1), (x, box["bottom"], 0, -1), (box["left"], y, 1, 0), (box["right"], y, -1, 0)]
    ratios = []
    for at_x, at_y, dx, dy in sides:
        around = photo.at(at_x - 3 * dx, at_y - 3 * dy)
        faces = [photo.at(at_x + step * dx, at_y + step * dy) for step in (-1, 0, 1, 2, 5)]
        if around is not None:
            ratios.append(max((contrast(around, face) for face in faces if face is not None), default=1.0))
    return sorted(ratios)[1] if len(ratios) > 1 else 21.0


def _ends(photo: Photo, box: Box) -> float:
    y = (box["top"] + box["bottom"]) / 2
    first, last = photo.at(box["left"] + 5, y), photo.at(box["right"] - 6, y)
    return contrast(first, last) if first and last else 21.0


def _outline(photo: Photo, focus: dict[str, Any]) -> float:
    """How far an outline stands out from the better half of what it is drawn on."""
    if focus["style"] == "none" or focus["width"] < 2:
        return 1.0
    out, box = focus["offset"] + focus["width"] / 2, focus["rect"]
    shares = [n / 10 for n in range(1, 10)]
    xs = [box["left"] + share * (box["right"] - box["left"]) for share in shares]
    ys = [box["top"] + share * (box["bottom"] - box["top"]) for share in shares]
    points = [(x, side) for x in xs for side in (box["top"] - out, box["bottom"] + out)]
    points += [(side, y) for y in ys for side in (box["left"] - out, box["right"] + out)]
    behind = [colour for x, y in points if (colour := photo.at(x, y)) is not None]
    ratios = sorted(contrast(painted(focus["colour"], 1, colour), colour) for colour in behind)
    return ratios[len(ratios) // 2] if ratios else 21.0


def misfits(page: Any) -> list[str]:
    """A sentence for each text that is cut, covered, or makes the page scroll sideways."""
    page.evaluate(LOOKS)
    found: list[str] = page.evaluate("looks.misfits()")
    return found
