"""Letters on paper: fonts, line breaks, and scripts that are written from right to left.

Helvetica, which no file needs to embed, writes what Windows-1252 has; everything else is written in the font of this
folder, DejaVu Sans. Arabic letters are joined and put into the order of the page here, because a PDF has neither.
"""

import unicodedata
from functools import cache
from pathlib import Path

import arabic_reshaper
from bidi import get_display
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from shared.web.pages.words import ISOLATES, Words

TEXT_MAX_CHARS = 200
LINE = 1.25
HELVETICA = ("Helvetica", "Helvetica-Bold")
FONTS = Path(__file__).parent / "fonts"
CUSTOM_FONT = "onsale-own"
_without_isolates = str.maketrans("", "", "".join(ISOLATES))


class Letters:
    """How texts of one document are written: its direction, and the font that each text needs."""

    def __init__(self, text: Words, *, custom_font: bool) -> None:
        self.rightwards = text.direction == "ltr"
        self._custom_font = custom_font

    def draw(
        self, canvas: Canvas, text: str, x: float, y: float, width: float, *, size: int, bold: bool = False,
        lines: int = 1, at_end: bool = False,
    ) -> float:  # fmt: skip
        """Draws the text wrapped to `width` from `x` on, in at most `lines` lines, beginning where lines of this
        direction begin, or ending where they end. Returns the height of the next line.
        """
        clean = " ".join(text[:TEXT_MAX_CHARS].split())
        font = self._font(clean, bold=bold)
        canvas.setFont(font, size)
        for line in self._wrapped(clean, font, size, width)[:lines]:
            if self.rightwards == at_end:
                canvas.drawRightString(x + width, y, self._visual(line))
            else:
                canvas.drawString(x, y, self._visual(line))
            y -= size * LINE
        return y

    def _font(self, text: str, *, bold: bool) -> str:
        if self._custom_font:
            return CUSTOM_FONT
        if self.rightwards and text.translate(_without_isolates).encode("cp1252", "ignore").decode("cp1252") == text:
            return HELVETICA[bold]
        return _own_font(bold)

    def _wrapped(self, text: str, font: str, size: int, width: float) -> list[str]:
        lines, line = list[str](), ""
        for word in text.split():
            longer = f"{line} {word}".strip()
            if line and pdfmetrics.stringWidth(self._visual(longer), font, size) > width:
                lines.append(line)
                longer = word
            line = longer
        return [*lines, line]

    def _visual(self, line: str) -> str:
        """The line in the order of the page, its Arabic letters joined."""
        if self.rightwards and not any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in line):
            return line
        shaped = get_display(arabic_reshaper.reshape(line), base_dir="L" if self.rightwards else "R")
        return str(shaped).translate(_without_isolates)


@cache
def _own_font(bold: bool) -> str:
    """The name of our font, which is read when it is first needed."""
    name = "DejaVuSans-Bold" if bold else "DejaVuSans"
    pdfmetrics.registerFont(TTFont(name, str(FONTS / f"{name}.ttf")))
    return name


def register_custom_font(path: Path) -> None:
    """Has every text written in this font."""
    pdfmetrics.registerFont(TTFont(CUSTOM_FONT, str(path)))
