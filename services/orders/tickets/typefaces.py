"""The fonts of papers: which of them writes which letter, and which letters no font writes.

Helvetica, which no file needs to embed, writes what Windows-1252 has. Other letters are written in the first font of
`OWN` that has them: they ship with the package and are read when a text first needs them.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

HELVETICA = ("Helvetica", "Helvetica-Bold")
DEJAVU = ("DejaVuSans", "DejaVuSans-Bold")  # Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic, Lao
OWN = (
    DEJAVU,
    ("NotoSansThai-Regular",),
    ("NotoSansEthiopic-Regular",),
    ("NotoSansKR-Hangul",),
    ("DroidSansFallbackFull",),  # Chinese and Japanese
)
FOLDER = Path(__file__).parent / "fonts"
CUSTOM_FONT = "onsale-own"
MISSING = "□"
NAMED_MAX = 10
# Scripts whose letters change with their neighbours in ways that nobody here knows: a font alone does not write them.
UNSHAPED = (
    range(0x0700, 0x0750), range(0x07C0, 0x0800), range(0x0900, 0x0E00), range(0x0F00, 0x10A0), range(0x1700, 0x18B0),
    range(0x1900, 0x1C80), range(0xA800, 0xA960), range(0xA980, 0xAAE0), range(0xABC0, 0xAC00),
)  # fmt: skip
_glyphs: dict[str, dict[int, int]] = {}
_reading = Lock()


class Run(NamedTuple):
    """A part of a line in one font. `thickened`: it is to be bold, and its font has no bold letters."""

    font: str
    text: str
    thickened: bool


def written(text: str, fonts: Sequence[str]) -> str:
    """The text as these fonts can write it. A letter that none of them has becomes a box, so that a person sees that
    one is missing; a pictogram is left out.
    """
    signs = (sign if any(writes(font, sign) for font in fonts) else _instead(sign) for sign in text)
    return " ".join("".join(signs).split())


def _instead(sign: str) -> str:
    """Pictures, and marks without a shape of their own such as what joins emoji, are no part of a name."""
    return "" if unicodedata.category(sign) in ("So", "Sk", "Cf", "Mn", "Me", "Cn", "Co", "Cc") else MISSING


def runs(line: str, fonts: Sequence[str], *, bold: bool) -> list[Run]:
    """The line in parts, each in the first of these fonts that has its letters."""
    found: list[Run] = []
    for sign in line:
        now = found[-1].font if found else ""
        font = now if now and writes(now, sign) else next((font for font in fonts if writes(font, sign)), fonts[-1])
        if found and found[-1].font == font:
            found[-1] = found[-1]._replace(text=found[-1].text + sign)
        else:
            found.append(Run(font, sign, bold and (font,) in OWN))
    return found


def fonts_for(text: str, *, bold: bool, rightwards: bool, custom: bool) -> tuple[str, ...]:
    """The fonts of a text, the first choice first. Helvetica is one only where DejaVu is not needed: they do not mix
    within a word.
    """
    own = tuple(each[bold] if len(each) > 1 else each[0] for each in OWN)
    if custom:
        return CUSTOM_FONT, *own
    plain = rightwards and all(writes(HELVETICA[bold], sign) or not writes(own[0], sign) for sign in text)
    return (HELVETICA[bold], *own) if plain else own


def writes(font: str, sign: str) -> bool:
    """Whether the font has this letter."""
    if font in HELVETICA:
        return bool(sign.encode("cp1252", "ignore"))
    return bool((_glyphs.get(font) or _letters_of(font)).get(ord(sign)))


def unprintable(texts: Iterable[str], *, custom: bool) -> str:
    """The characters of these texts that papers cannot show: no font has them, or their script needs more than a font.
    Each is named once; what joins or varies pictograms is not named.
    """
    signs = sorted({sign for text in texts for sign in unicodedata.normalize("NFC", text) if not sign.isspace()})
    shown = (sign for sign in signs if unicodedata.category(sign) not in ("Cf", "Cc") and not _varies(sign))
    return "".join(sign for sign in shown if _needs_shaping(sign) or not _has_font(sign, custom=custom))


def warning_about(texts: Iterable[str], *, custom: bool) -> str | None:
    """What an operator should know before these texts are printed."""
    found = unprintable(texts, custom=custom)
    named = ", ".join(f"{sign} (U+{ord(sign):04X})" for sign in found[:NAMED_MAX])
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return (
        (
            f"Tickets and receipts cannot show {named}{more}: letters are printed as boxes, and pictures are left out. "
            "Write the names in a script that papers have; the documentation of tickets names them."
        )
        if found
        else None
    )


def is_mark(sign: str) -> bool:
    """Whether it belongs to the letter before it."""
    return unicodedata.category(sign) in ("Mn", "Mc", "Me", "Cf")


def _needs_shaping(sign: str) -> bool:
    return any(ord(sign) in script for script in UNSHAPED)


def _has_font(sign: str, *, custom: bool) -> bool:
    return any(writes(font, sign) for font in fonts_for(sign, bold=False, rightwards=True, custom=custom))


def _varies(sign: str) -> bool:
    return 0xFE00 <= ord(sign) <= 0xFE0F or 0x1F3FB <= ord(sign) <= 0x1F3FF


def _letters_of(font: str) -> dict[int, int]:
    """The letters of a font, which is read from its file once: two threads must not register it twice."""
    with _reading:
        if font not in _glyphs:
            if font != CUSTOM_FONT:
                pdfmetrics.registerFont(TTFont(font, str(FOLDER / f"{font}.ttf")))
            read: Any = pdfmetrics.getFont(font)
            _glyphs[font] = read.face.charToGlyph
        return _glyphs[font]


def register_custom_font(path: Path) -> None:
    """Has every text written in this font, as far as it has the letters."""
    with _reading:
        pdfmetrics.registerFont(TTFont(CUSTOM_FONT, str(path)))
        _glyphs.pop(CUSTOM_FONT, None)
