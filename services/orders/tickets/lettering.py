"""Letters on paper: line breaks, sizes that fit, and scripts that are written from right to left.

A text fills its space and never leaves it: what is too long is written smaller, a word that is longer than a line is
broken, and only what does not fit at the smallest size ends in an ellipsis. Chinese and Japanese break between letters.
Arabic letters are joined and put into the order of the page here, because a PDF has neither.
"""

import unicodedata
from bisect import bisect_left
from functools import lru_cache, partial
from itertools import chain
from typing import Final, NamedTuple

import arabic_reshaper
from bidi import get_display
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas

from services.orders.tickets.typefaces import Run, fonts_for, is_mark, runs, written
from shared.words.words import ISOLATES, Words

TEXT_MAX_CHARS = 500
SIZE_MIN = 6
LINE = 1.25
LAID_OUT_MAX = 2_000  # texts whose layout is kept: all tickets of an order have most of them
FILLED: Final = 0
FILLED_AND_DRAWN: Final = 2  # the PDF's way of drawing letters with their outline, which thickens them
HANGUL = range(0xAC00, 0xD7A4)  # Korean has spaces between its words
NOT_FIRST = frozenset(
    "、。，．・：；？！）］｝」』】〉》〕’”ー～ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ゝゞヽヾ…‥%,.:;?!)]}ะาำๅๆฯ"
)
NOT_LAST = frozenset("（［｛「『【〈《〔‘“([{เแโใไ")
BREAK_AFTER = frozenset("-/–—|·_")
SHAPELESS = (range(0x20), range(0x7F, 0xA0), (0xAD, 0x200D), range(0x202A, 0x202F), range(0xFE00, 0xFE10))
_dropped = dict.fromkeys(chain.from_iterable(SHAPELESS))
_without_isolates = str.maketrans("", "", "".join(ISOLATES))


class Setting(NamedTuple):
    """How a text is set. `rightwards`: in a document that is read from left to right."""

    rightwards: bool
    custom_font: bool
    bold: bool
    size: int
    width: float
    lines: int

    def lines_at(self, size: int) -> int:
        """How many lines of this size have the height of `lines` lines."""
        return self.lines * self.size // size


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
        setting = Setting(
            rightwards=self.rightwards, custom_font=self._custom_font, bold=bold, size=size, width=width, lines=lines
        )  # fmt: skip
        size, laid_out = _laid_out(_clean(text), setting)
        for line in laid_out:
            at = x + width - _width(line, size) if self.rightwards == at_end else x
            for run in line:
                canvas.setFont(run.font, size)
                canvas.setLineWidth(size / 30)
                canvas.drawString(at, y, run.text, mode=FILLED_AND_DRAWN if run.thickened else FILLED)
                at += _width([run], size)
            y -= size * LINE
        return y - (setting.size - size) * LINE  # whatever follows is as large as this was to be


def _clean(text: str) -> str:
    """The text in one form and one line, without what has no shape."""
    clean = " ".join(unicodedata.normalize("NFC", text).split()).translate(_dropped)
    return clean if len(clean) <= TEXT_MAX_CHARS else clean[: TEXT_MAX_CHARS - 1] + "…"


@lru_cache(LAID_OUT_MAX)
def _laid_out(text: str, setting: Setting) -> tuple[int, list[list[Run]]]:
    """The largest size at which the text fits, and its lines."""
    fonts = fonts_for(text, bold=setting.bold, rightwards=setting.rightwards, custom=setting.custom_font)
    typesetter = _Typesetter(fonts, setting)
    text, size = written(text, fonts), setting.size
    while len(lines := typesetter.wrapped(text, size)) > setting.lines_at(size) and size > SIZE_MIN:
        size -= 1
    if len(lines) > (lines_max := setting.lines_at(size)):
        lines[lines_max - 1 :] = [typesetter.cut(lines[lines_max - 1], size, ending="…")]
    return size, [typesetter.runs(line) for line in lines]


class _Typesetter(NamedTuple):
    """Breaks one text into lines."""

    fonts: tuple[str, ...]
    setting: Setting

    def runs(self, line: str) -> list[Run]:
        return runs(_visual(line, rightwards=self.setting.rightwards), self.fonts, bold=self.setting.bold)

    def fits(self, line: str, size: int) -> bool:
        return _width(self.runs(line.rstrip()), size) <= self.setting.width

    def wrapped(self, text: str, size: int) -> list[str]:
        lines, line = list[str](), ""
        for piece in _pieces(text):
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
        clusters = _clusters(text)
        too_long = partial(self._is_too_long, clusters, size, ending)
        fitting = max(1, bisect_left(range(1, len(clusters) + 1), True, key=too_long))
        parted = (n for n in range(fitting, 1, -1) if n == len(clusters) or _may_part(clusters[n - 1], clusters[n]))
        return "".join(clusters[: next(parted, fitting)]) + ending

    def _is_too_long(self, clusters: list[str], size: int, ending: str, count: int) -> bool:
        return not self.fits("".join(clusters[:count]) + ending, size)


def _clusters(text: str) -> list[str]:
    """The text in letters with their marks."""
    clusters: list[str] = []
    for sign in text:
        if clusters and is_mark(sign) and sign not in ISOLATES[:2]:
            clusters[-1] += sign
        else:
            clusters.append(sign)
    return clusters


def _pieces(text: str) -> list[str]:
    """The text in parts that a line may end after, each with the space that follows it."""
    pieces, before = [""], ""
    for cluster in _clusters(text):
        if before and _may_break(before, cluster):
            pieces.append("")
        pieces[-1] += cluster
        before = cluster
    return pieces


def _may_break(before: str, after: str) -> bool:
    if after == " " or before == " ":
        return before == " "
    if not _may_part(before, after):
        return False
    return before[0] in BREAK_AFTER or _is_ideograph(before[0]) or _is_ideograph(after[0])


def _may_part(before: str, after: str) -> bool:
    """Whether these may stand on two lines, if they must."""
    return before[0] not in NOT_LAST and after[0] not in NOT_FIRST


def _is_ideograph(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in ("W", "F") and ord(sign) not in HANGUL


def _width(line: list[Run], size: int) -> float:
    return float(sum(pdfmetrics.stringWidth(run.text, run.font, size) for run in line))


def _visual(line: str, *, rightwards: bool) -> str:
    """The line in the order of the page, its Arabic letters joined."""
    if rightwards and not any(unicodedata.bidirectional(sign) in ("R", "AL") for sign in line):
        return line.translate(_without_isolates)
    shaped = get_display(arabic_reshaper.reshape(line), base_dir="L" if rightwards else "R")
    return str(shaped).translate(_without_isolates)
