"""Letters on paper: fonts, line breaks, sizes that fit, and scripts that are written from right to left.

Helvetica, which no file needs to embed, writes what Windows-1252 has. Other letters are written in the first font of
`OWN` that has them: they ship with the package and are read when a text first needs them.

A text fills its space and never leaves it: what is too long is written smaller, a word that is longer than a line is
broken, and only what does not fit at the smallest size ends in an ellipsis. Chinese and Japanese break between letters.
Arabic letters are joined and put into the order of the page here, because a PDF has neither.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import arabic_reshaper
from bidi import get_display
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from shared.words.words import ISOLATES, Words

HELVETICA = ("Helvetica", "Helvetica-Bold")
OWN = (
    ("DejaVuSans", "DejaVuSans-Bold"),  # Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic, Lao
    ("NotoSansThai-Regular",),
    ("NotoSansEthiopic-Regular",),
    ("NotoSansKR-Hangul",),
    ("DroidSansFallbackFull",),  # Chinese and Japanese
)
FOLDER = Path(__file__).parent / "fonts"
CUSTOM_FONT = "onsale-own"
MISSING = "□"
TEXT_MAX_CHARS = 500
SIZE_MIN = 6
LINE = 1.25
LAID_OUT_MAX = 2_000  # texts whose layout is kept: all tickets of an order have most of them
FILLED: Final = 0
FILLED_AND_DRAWN: Final = 2  # the PDF's way of drawing letters with their outline, which thickens them

# Scripts whose letters change with their neighbours in ways that nobody here knows: a font alone does not write them.
UNSHAPED = re.compile(
    "[\u0700-\u074f\u07c0-\u07ff\u0900-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1c7f\ua800-\ua95f\ua980-\uaadf"
    "\uabc0-\uabff]"
)
VARIATIONS = re.compile("[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
SHAPELESS = re.compile("[\x00-\x1f\x7f-\x9f\xad\u200d\u202a-\u202e\ufe00-\ufe0f]")

# Lines break after spaces and dashes, and beside the wide letters of Chinese and Japanese (Korean has spaces), but not
# where a line would begin or end with a mark that may not stand there.
NOT_FIRST = (
    "、。，．・：；？！）］｝」』】〉》〕’”ー～ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ゝゞヽヾ…‥%,.:;?!)]}ะาำๅๆฯ"
)
NOT_LAST = "（［｛「『【〈《〔‘“([{เแโใไ"
WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97f\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U0001f000-\U0003ffff"
)
MARKS = (  # and signs without a width, but not those that begin a part of its own direction
    "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign)[0] == "M")
    + "\u061c\u200b-\u200f\u2060-\u2066\u2069-\u206f\ufeff"
)
_may_begin, _may_end = f"(?![{re.escape(NOT_FIRST)}{MARKS}])", f"(?<![{re.escape(NOT_LAST)}])"
_BREAK = re.compile(f"(?<= )|(?:(?<=[-/–—|·_{WIDE}])(?! )|(?<! )(?=[{WIDE}])){_may_end}{_may_begin}")
_PART = re.compile(f"{_may_end}{_may_begin}")
_CLUSTER = re.compile(f"(?s).[{MARKS}]*")
_without_isolates = str.maketrans("", "", "".join(ISOLATES))
_glyphs: dict[str, dict[int, int]] = {}
_reading = Lock()


class Run(NamedTuple):
    """A part of a line in one font. `thickened`: it is to be bold, and its font has no bold letters."""

    font: str
    text: str
    thickened: bool


class Letters:
    """How texts of one document are written: its direction, and the fonts that each text needs."""

    def __init__(self, text: Words, *, custom_font: bool) -> None:
        self.rightwards = text.direction == "ltr"
        self._custom_font = custom_font

    def draw(
        self, canvas: Canvas, text: str, x: float, y: float, width: float, *, size: int, bold: bool = False,
        lines: int = 1, at_end: bool = False,
    ) -> float:  # fmt: skip
        """Draws the text within `width` from `x` on and the height of `lines` lines, beginning where lines of this
        direction begin, or ending where they end. Returns the height of the next line.
        """
        text = SHAPELESS.sub("", " ".join(unicodedata.normalize("NFC", text).split()))
        text = text if len(text) <= TEXT_MAX_CHARS else text[: TEXT_MAX_CHARS - 1] + "…"
        fonts = fonts_for(text, bold=bold, rightwards=self.rightwards, custom=self._custom_font)
        fitting, laid_out = _laid_out(text, _Typesetter(fonts, self.rightwards, bold, width), size, lines)
        for line in laid_out:
            at = x + width - _width(line, fitting) if self.rightwards == at_end else x
            for run in line:
                canvas.setFont(run.font, fitting)
                canvas.setLineWidth(fitting / 30)
                canvas.drawString(at, y, run.text, mode=FILLED_AND_DRAWN if run.thickened else FILLED)
                at += _width([run], fitting)
            y -= fitting * LINE
        return y - (size - fitting) * LINE  # whatever follows is as large as this was to be


# -- lines -------------------------------------------------------------------------------------------------------------


class _Typesetter(NamedTuple):
    """Breaks texts into lines of one width. `rightwards`: in a document that is read from left to right."""

    fonts: tuple[str, ...]
    rightwards: bool
    bold: bool
    width: float

    def runs(self, line: str) -> list[Run]:
        """The line in parts in the order of the page, each in the first of the fonts that has its letters."""
        found: list[Run] = []
        for sign in _visual(line, rightwards=self.rightwards):
            now = found[-1].font if found else ""
            stays = bool(now) and writes(now, sign)
            font = now if stays else next((font for font in self.fonts if writes(font, sign)), self.fonts[-1])
            if font == now:
                found[-1] = found[-1]._replace(text=found[-1].text + sign)
            else:
                found.append(Run(font, sign, self.bold and (font,) in OWN))
        return found

    def fits(self, line: str, size: int) -> bool:
        return _width(self.runs(line.rstrip()), size) <= self.width

    def wrapped(self, text: str, size: int) -> list[str]:
        lines, line = list[str](), ""
        for piece in _BREAK.split(text):
            if self.fits(line + piece, size):
                line += piece
                continue
            if line:
                lines.append(line.rstrip())
            line = piece
            while not self.fits(line, size):
                head = self.cut(line, size)
                lines.append(head)
                line = line[len(head) :].lstrip()
        return [*lines, line.rstrip()]

    def cut(self, text: str, size: int, *, ending: str = "") -> str:
        """As many letters of the text, at least one, as fit into a line with this ending."""
        ends = [letter.end() for letter in _CLUSTER.finditer(text)]
        count = bisect_left(ends, True, key=lambda end: not self.fits(text[:end] + ending, size))
        fitting = ends[: max(1, count)]
        return text[: next((end for end in fitting[:0:-1] if _PART.match(text, end)), fitting[-1])] + ending


@lru_cache(LAID_OUT_MAX)
def _laid_out(text: str, typesetter: _Typesetter, size_max: int, lines_max: int) -> tuple[int, list[list[Run]]]:
    """The largest size at which the text fits into the height of so many lines of `size_max`, and its lines."""
    text, size = written(text, typesetter.fonts), size_max
    while len(lines := typesetter.wrapped(text, size)) > (most := lines_max * size_max // size) and size > SIZE_MIN:
        size -= 1
    if len(lines) > most:
        lines[most - 1 :] = [typesetter.cut(lines[most - 1], size, ending="…")]
    return size, [typesetter.runs(line) for line in lines]


def _width(line: list[Run], size: int) -> float:
    return float(sum(pdfmetrics.stringWidth(run.text, run.font, size) for run in line))


def _visual(line: str, *, rightwards: bool) -> str:
    """The line in the order of the page, its Arabic letters joined."""
    if not rightwards or any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in line):
        line = str(get_display(arabic_reshaper.reshape(line), base_dir="L" if rightwards else "R"))
    return line.translate(_without_isolates)


# -- fonts -------------------------------------------------------------------------------------------------------------


def written(text: str, fonts: Sequence[str]) -> str:
    """The text as these fonts can write it. A letter that none of them has becomes a box, so that a person sees that
    one is missing; a pictogram is left out.
    """
    signs = (sign if any(writes(font, sign) for font in fonts) else _instead(sign) for sign in text)
    return " ".join("".join(signs).split())


def _instead(sign: str) -> str:
    """Pictures, and marks without a shape of their own such as what joins emoji, are no part of a name."""
    return "" if re.match("S[ok]|M[ne]|C[fnoc]", unicodedata.category(sign)) else MISSING


def fonts_for(text: str, *, bold: bool, rightwards: bool, custom: bool) -> tuple[str, ...]:
    """The fonts of a text, the first choice first. Helvetica is one only where DejaVu is not needed: they do not mix
    within a word.
    """
    own = tuple(each[bold and len(each) > 1] for each in OWN)
    if custom:
        return CUSTOM_FONT, *own
    plain = rightwards and all(writes(HELVETICA[bold], sign) or not writes(own[0], sign) for sign in text)
    return (HELVETICA[bold], *own) if plain else own


def unprintable(texts: Iterable[str], *, custom: bool) -> str:
    """The characters of these texts that papers cannot show: no font has them, or their script needs more than a font.
    Each is named once; what joins or varies pictograms is not named.
    """
    fonts = fonts_for("", bold=False, rightwards=True, custom=custom)
    signs = sorted({sign for text in texts for sign in unicodedata.normalize("NFC", text) if not sign.isspace()})
    shown = (s for s in signs if not re.match("C[fc]", unicodedata.category(s)) and not VARIATIONS.match(s))
    return "".join(sign for sign in shown if UNSHAPED.match(sign) or not any(writes(font, sign) for font in fonts))


def writes(font: str, sign: str) -> bool:
    """Whether the font has this letter."""
    if font in HELVETICA:
        return bool(sign.encode("cp1252", "ignore"))
    return bool((_glyphs.get(font) or _read(font, FOLDER / f"{font}.ttf")).get(ord(sign)))


def _read(font: str, path: Path, *, again: bool = False) -> dict[int, int]:
    """The letters of a font, which is read from its file once: two threads must not register it twice."""
    with _reading:
        if again or font not in _glyphs:
            pdfmetrics.registerFont(read := TTFont(font, str(path)))
            _glyphs[font] = read.face.charToGlyph
        return _glyphs[font]


def register_custom_font(path: Path) -> None:
    """Has every text written in this font, as far as it has the letters."""
    _read(CUSTOM_FONT, path, again=True)
